//! Collapse and insert of ranges: shifting the extents of a file.

use crate::allocate::ReservedAccess;
use crate::block_mapping::Mapping;
use crate::buffer;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::map::{self, MappedExtent};

impl Filesystem {
    fn whole_blocks(&self, offset: u64, length: u64) -> Result<(u64, u64)> {
        let size = u64::from(self.geometry.block_size);
        if offset % size != 0 || length % size != 0 {
            return Err(Error::Invalid);
        }
        Ok((offset / size, length / size))
    }

    /// Removes `offset..end`. Each handle moves one extent: a crash leaves a consistent file that is partially shifted. It records the
    /// block from which extents are left to move, so that a process that takes over continues there.
    pub(super) fn collapse(&self, inode: &mut Inode, offset: u64, end: u64) -> Result<()> {
        if end >= inode.size {
            return Err(Error::Invalid);
        }
        let (first, count) = self.whole_blocks(offset, end - offset)?;
        let mut at = first + count;
        match buffer::earlier() {
            Some(moved) => at = at.max(moved),
            None => self.free_block_range(inode, first, first + count)?,
        }
        let last = map::longest(&self.geometry, inode);
        while let Some(piece) = self.next_piece(inode, at, last)? {
            self.shift_piece(inode, piece, piece.logical - count as u32, piece.end())?;
            at = piece.end();
        }
        inode.size -= end - offset;
        Ok(())
    }

    /// Inserts a hole of `length` bytes before `offset`. Each handle records the block up to which extents are left to move.
    pub(super) fn insert(&self, inode: &mut Inode, offset: u64, length: u64) -> Result<()> {
        if offset >= inode.size {
            return Err(Error::Invalid);
        }
        let (first, count) = self.whole_blocks(offset, length)?;
        let mut longest = map::longest(&self.geometry, inode);
        match buffer::earlier() {
            // The first handle saved the size.
            Some(unmoved) => longest = longest.min(unmoved),
            None => {
                let size = inode.size.checked_add(length).filter(|&size| size <= self.largest(inode));
                // A crash must not leave blocks beyond the end.
                inode.size = size.ok_or(Error::TooLarge)?;
            }
        }
        // Move from the end, so that extents do not overlap.
        let mut pieces = Vec::new();
        let mut at = first;
        while let Some(piece) = self.next_piece(inode, at, longest)? {
            at = piece.end();
            pieces.push(piece);
        }
        if at + count > map::longest(&self.geometry, inode) {
            return Err(Error::TooLarge);
        }
        for piece in pieces.into_iter().rev() {
            self.shift_piece(inode, piece, piece.logical + count as u32, piece.logical.into())?;
        }
        Ok(())
    }

    /// Returns the first allocated run in a range.
    fn next_piece(&self, inode: &Inode, mut at: u64, to: u64) -> Result<Option<MappedExtent>> {
        while at < to {
            let limit = (to - at).min(u32::MAX.into()) as u32;
            let run = map::map(&self.geometry, &self.store, inode, at as u32, limit)?;
            let piece =
                |start, written| MappedExtent { logical: run.logical, length: run.length, start, written };
            match run.mapping {
                Mapping::Hole => at += u64::from(run.length),
                Mapping::Written(start) => return Ok(Some(piece(start, true))),
                Mapping::Unwritten(start) => return Ok(Some(piece(start, false))),
            }
        }
        Ok(None)
    }

    fn shift_piece(&self, inode: &mut Inode, piece: MappedExtent, logical: u32, progress: u64) -> Result<()> {
        let moved = MappedExtent { logical, ..piece };
        // After its removal from the map, the extent must find room at its new position.
        self.allocator()?.check(map::CREDITS, ReservedAccess::Reserved)?;
        let mut handle = self.store.begin(1 + 2 * map::CREDITS)?;
        map::replace(self, &mut handle, inode, (piece.logical.into(), piece.end()), &[])?;
        map::replace(self, &mut handle, inode, (logical.into(), moved.end()), &[moved])?;
        inode.save(&mut handle)?;
        handle.record(progress);
        handle.complete();
        Ok(())
    }
}
