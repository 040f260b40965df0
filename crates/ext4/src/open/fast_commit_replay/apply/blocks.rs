//! Replay of block map changes, and of the block bitmaps that follow from them.

use zerocopy::FromBytes;

use super::super::ranges::Ranges;
use super::{Apply, wrong};
use crate::allocate::TAKE_CREDITS;
use crate::block_mapping::Mapping;
use crate::error::Result;
use crate::inode::{Inode, Kind};
use crate::journal::fast_commit::Change;
use crate::layout::{Extent, InodeFlags, UNWRITTEN_ABOVE};
use crate::map::{self, MappedExtent};

/// Decodes an extent of a fast commit.
fn piece(inode: u32, extent: &[u8; size_of::<Extent>()]) -> Result<MappedExtent> {
    let extent = Extent::read_from_bytes(extent).expect("the size is that of the type");
    let (length, written) = match extent.len.get() {
        length if length > UNWRITTEN_ABOVE => (length - UNWRITTEN_ABOVE, false),
        length => (length, true),
    };
    let start = u64::from(extent.start_hi.get()) << 32 | u64::from(extent.start_lo.get());
    let piece = MappedExtent { logical: extent.block.get(), length: length.into(), start, written };
    if length == 0 || piece.end() > u32::MAX.into() {
        return Err(wrong("extent is empty or ends beyond the maximum file size", inode));
    }
    Ok(piece)
}

impl Apply<'_> {
    /// Reports whether an inode has a block map.
    pub(super) fn is_mapped(&self, inode: &Inode) -> bool {
        let kind = match inode.kind {
            Kind::Regular | Kind::Directory => true,
            Kind::Symlink => !inode.is_short_link(&self.fs.geometry),
            _ => false,
        };
        kind && !inode.flags.contains(InodeFlags::INLINE_DATA)
    }

    /// Calls `each` with start and end of each run of blocks of an inode.
    pub(super) fn pieces(
        &mut self,
        inode: &Inode,
        mut each: impl FnMut(&mut Self, u64, u64) -> Result<()>,
    ) -> Result<()> {
        if !self.is_mapped(inode) {
            return Ok(());
        }
        let (mut at, end) = (0, map::longest(&self.fs.geometry, inode));
        while at < end {
            let limit = (end - at).min(u32::MAX.into()) as u32;
            let run = map::map(&self.fs.geometry, &self.fs.store, inode, at as u32, limit)?;
            if let Mapping::Written(start) | Mapping::Unwritten(start) = run.mapping {
                each(self, start, start + u64::from(run.length))?;
            }
            at += u64::from(run.length);
        }
        Ok(())
    }

    /// Marks the blocks that are to be mapped, and are not mapped yet, as used. Fails if another inode owns one of them.
    pub(super) fn claim(&mut self) -> Result<()> {
        for change in self.changes {
            let Change::Add { inode, extent } = change else { continue };
            let piece = piece(*inode, extent)?;
            self.fs.geometry.check_blocks(piece.start, piece.length.into())?;
            let end = piece.start + u64::from(piece.length);
            for (start, end) in self.owned.missing(piece.start, end) {
                for (start, count) in self.in_groups(start, end) {
                    let mut handle = self.fs.store.begin(TAKE_CREDITS)?;
                    let claimed = self.fs.allocator()?.claim(&mut handle, start, count);
                    claimed.map_err(|error| error.of_inode(*inode))?;
                    handle.complete();
                }
                self.loose.insert(start, end);
            }
            self.owned.insert(piece.start, end);
        }
        Ok(())
    }

    /// Splits a range at group boundaries.
    fn in_groups(&self, start: u64, end: u64) -> Vec<(u64, u32)> {
        let geometry = &self.fs.geometry;
        let (first, each) = (u64::from(geometry.first_data_block), u64::from(geometry.blocks_per_group));
        let mut parts = Vec::new();
        let mut at = start;
        while at < end {
            let next = ((at - first) / each + 1) * each + first;
            parts.push((at, (next.min(end) - at) as u32));
            at = next;
        }
        parts
    }

    pub(super) fn add(&mut self, mut inode: Inode, extent: [u8; size_of::<Extent>()]) -> Result<()> {
        let piece = piece(inode.number, &extent)?;
        let mapped = matches!(inode.kind, Kind::Regular | Kind::Symlink);
        if !mapped || !inode.flags.contains(InodeFlags::EXTENTS) {
            return Err(wrong("extent for an inode without extents", inode.number));
        }
        let mut done = 0;
        while done < piece.length {
            let rest = piece.from(done);
            let geometry = &self.fs.geometry;
            let run = map::map(geometry, &self.fs.store, &inode, rest.logical, rest.length)?;
            let current = match run.mapping {
                Mapping::Written(start) => (start, true),
                Mapping::Unwritten(start) => (start, false),
                Mapping::Hole => (0, false),
            };
            let new = MappedExtent { length: run.length, ..rest };
            if current != (new.start, new.written) {
                self.replace(&mut inode, (new.logical.into(), new.end()), &[new])?;
            }
            done += run.length;
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, mut inode: Inode, logical: u32, length: u32) -> Result<()> {
        if !matches!(inode.kind, Kind::Regular | Kind::Symlink) || !self.is_mapped(&inode) {
            return Err(wrong("hole in an inode without blocks", inode.number));
        }
        self.remove(&mut inode, logical.into(), u64::from(logical) + u64::from(length))
    }

    /// Unmaps a range of an inode; its blocks become loose.
    pub(super) fn remove(&mut self, inode: &mut Inode, from: u64, to: u64) -> Result<()> {
        let to = to.min(map::longest(&self.fs.geometry, inode));
        let mut at = from;
        while at < to {
            let limit = (to - at).min(u32::MAX.into()) as u32;
            let run = map::map(&self.fs.geometry, &self.fs.store, inode, at as u32, limit)?;
            let end = at + u64::from(run.length);
            if run.mapping != Mapping::Hole {
                self.replace(inode, (at, end), &[])?;
            }
            at = end;
        }
        Ok(())
    }

    fn replace(&mut self, inode: &mut Inode, range: (u64, u64), new: &[MappedExtent]) -> Result<()> {
        let unit = u64::from(self.fs.geometry.block_size / 512);
        let mut handle = self.fs.store.begin(1 + map::CREDITS)?;
        for piece in map::replace(self.fs, &mut handle, inode, range, new)? {
            self.loose.insert(piece.start, piece.start + u64::from(piece.length));
            inode.blocks = inode.blocks.saturating_sub(u64::from(piece.length) * unit);
        }
        inode.blocks += new.iter().map(|piece| u64::from(piece.length) * unit).sum::<u64>();
        self.save(&mut handle, inode)
    }

    /// Frees loose blocks that no inode maps. Fails if two inodes map the same block.
    pub(super) fn free_loose_blocks(&mut self) -> Result<()> {
        let mut used = Ranges::default();
        for number in self.inodes.clone() {
            let Some(inode) = self.inode(number)? else { continue };
            self.pieces(&inode, |_, start, end| {
                if used.meets(start, end) {
                    return Err(wrong(format!("blocks {start}+{} are mapped twice", end - start), number));
                }
                used.insert(start, end);
                Ok(())
            })?;
        }
        for (start, end) in self.loose.iter() {
            for (start, end) in used.missing(start, end) {
                for (start, count) in self.in_groups(start, end) {
                    let mut handle = self.fs.store.begin(TAKE_CREDITS)?;
                    self.fs.allocator()?.free(&mut handle, start, count)?;
                    handle.complete();
                }
            }
        }
        Ok(())
    }
}
