//! Truncation and freeing of file blocks.

use crate::block_mapping::Mapping;
use crate::buffer::Handle;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};
use crate::map;
use crate::{orphans, time};

/// Number of extents that one handle frees.
const MAX_EXTENTS_PER_TRANSACTION: usize = 16;

/// Directory blocks that count as one extent: each is revoked in the journal, which limits revocations per transaction.
const MAX_REVOKED_PER_TRANSACTION: u32 = 256;

/// The first extents of a file in a range, as many as one handle can free.
struct Part {
    from: u64,
    to: u64,
    /// Number of blocks that freeing them may change.
    credits: u32,
    /// More extents follow.
    more: bool,
}

impl Filesystem {
    /// Sets the size of a file. Bytes added read as zeros.
    ///
    /// # Errors
    /// The errors of [`write`](Self::write).
    pub fn truncate(&self, number: u32, size: u64) -> Result<()> {
        let _lock = self.locks.write(number);
        let mut inode = self.regular(number)?;
        if size > self.largest(&inode) {
            return Err(Error::TooLarge);
        }
        if !self.store.is_writable() {
            return Err(Error::ReadOnly);
        }
        if size > inode.size {
            self.zero_behind_end(&inode, size)?;
        } else {
            self.zero_within(&inode, size, size.next_multiple_of(self.geometry.block_size.into()))?;
        }
        self.release(number);
        inode.size = size;
        inode.mtime = time::now();
        inode.ctime = inode.mtime;
        self.cut(&mut inode, size)
    }

    /// Saves an inode and frees all blocks beyond `size`. After a crash, the next mount frees the rest.
    pub(crate) fn cut(&self, inode: &mut Inode, size: u64) -> Result<()> {
        let first = size.div_ceil(self.geometry.block_size.into());
        let end = map::longest(&self.geometry, inode) + 1;
        let mut orphan = false;
        loop {
            let part = self.part(inode, first, end)?;
            let credits = 1 + orphans::CREDITS + part.as_ref().map_or(0, |part| part.credits);
            let mut handle = self.store.begin(credits)?;
            let Some(part) = part else {
                return self.end_cut(&mut handle, inode, orphan);
            };
            if part.more && !orphan && inode.links > 0 {
                orphans::add(self, &mut handle, inode)?;
                orphan = true;
            }
            self.free_part(&mut handle, inode, &part)?;
            if !part.more {
                return self.end_cut(&mut handle, inode, orphan);
            }
            inode.save(&mut handle)?;
            handle.complete();
        }
    }

    fn end_cut(&self, handle: &mut Handle<'_>, inode: &mut Inode, orphan: bool) -> Result<()> {
        if orphan {
            orphans::remove(self, handle, inode)?;
        }
        inode.save(handle)?;
        handle.complete();
        Ok(())
    }

    /// Frees the blocks `from..to` of a file, in as many handles as needed.
    pub(super) fn free_block_range(&self, inode: &mut Inode, from: u64, to: u64) -> Result<()> {
        while let Some(part) = self.part(inode, from, to)? {
            let mut handle = self.store.begin(1 + part.credits)?;
            self.free_part(&mut handle, inode, &part)?;
            inode.save(&mut handle)?;
            handle.complete();
            if !part.more {
                break;
            }
        }
        Ok(())
    }

    fn part(&self, inode: &Inode, from: u64, to: u64) -> Result<Option<Part>> {
        let to = to.min(map::longest(&self.geometry, inode));
        let per_group = self.geometry.blocks_per_group;
        let mut part: Option<Part> = None;
        let (mut at, mut runs) = (from, 0);
        while at < to {
            let limit = (to - at).min(u32::MAX.into()) as u32;
            let mut run = map::map(&self.geometry, &self.store, inode, at as u32, limit)?;
            if inode.kind == Kind::Directory && run.mapping != Mapping::Hole {
                run.length = run.length.min(MAX_REVOKED_PER_TRANSACTION);
            }
            let end = at + u64::from(run.length);
            if run.mapping != Mapping::Hole {
                if runs == MAX_EXTENTS_PER_TRANSACTION {
                    part = part.map(|part| Part { more: true, ..part });
                    break;
                }
                runs += 1;
                // Bitmap and descriptor of each group that the extent overlaps, and the map node that references it.
                let credits = (run.length / per_group + 2) * 2 + 2;
                part = Some(match part {
                    Some(part) => Part { to: end, credits: part.credits + credits, ..part },
                    None => Part { from: at, to: end, credits: map::CREDITS + credits, more: false },
                });
            }
            at = end;
        }
        Ok(part)
    }

    fn free_part(&self, handle: &mut Handle<'_>, inode: &mut Inode, part: &Part) -> Result<()> {
        for piece in map::replace(self, handle, inode, (part.from, part.to), &[])? {
            if inode.kind == Kind::Directory {
                // The journal has copies of these blocks, which recovery must not write over their next content.
                (0..piece.length).for_each(|n| handle.forget(piece.start + u64::from(n)));
            }
            self.allocator()?.free(handle, piece.start, piece.length)?;
            inode.blocks = inode.blocks.saturating_sub(self.units(piece.length.into()));
        }
        Ok(())
    }
}
