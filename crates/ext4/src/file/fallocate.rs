//! Blocks for a file ahead of its content, and the other things `fallocate(2)` does.

use crate::allocate::ReservedAccess;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::layout::InodeFlags;
use crate::map::{self, MappedExtent};
use crate::mapped_range::Mapping;
use crate::time;

/// What is to become of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallocate {
    /// It has blocks, and the file ends behind it at least.
    Allocate,
    /// It has blocks; the file's size stays.
    KeepSize,
    /// It has no blocks, and reads as zeros; the file's size stays.
    Punch,
    /// It has blocks, and reads as zeros.
    Zero {
        /// The file's size stays.
        keep_size: bool,
    },
    /// It is cut out, and what was behind it moves forward. In whole blocks, within the file.
    Collapse,
    /// A hole is put before it, as long as it. In whole blocks, within the file.
    Insert,
}

/// Blocks of one extent that is allocated at once.
const MAX_UNWRITTEN_BLOCKS: u32 = 32767;

impl Filesystem {
    /// Allocates or frees a range of a file, in bytes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for files without extents, except for punching; [`Error::Invalid`] for ranges that must be
    /// whole blocks within the file; and as [`write`](Self::write).
    pub fn fallocate(&self, number: u32, what: Fallocate, offset: u64, length: u64) -> Result<()> {
        self.fallocate_as(number, what, (offset, length), ReservedAccess::Reserved)
    }

    /// As [`fallocate`](Self::fallocate) of a range (offset and length), by somebody with these rights.
    ///
    /// # Errors
    /// As `fallocate`; [`Error::NoSpace`] too where all that is left is reserved.
    pub fn fallocate_as(
        &self,
        number: u32,
        what: Fallocate,
        (offset, length): (u64, u64),
        rights: ReservedAccess,
    ) -> Result<()> {
        let _lock = self.locks.write(number);
        let mut inode = self.regular(number)?;
        let end = offset.checked_add(length).filter(|_| length > 0).ok_or(Error::Invalid)?;
        if end > self.largest(&inode) {
            return Err(Error::TooLarge);
        }
        if !self.store.is_writable() {
            return Err(Error::ReadOnly);
        }
        if what != Fallocate::Punch && !inode.flags.contains(InodeFlags::EXTENTS) {
            return Err(Error::Unsupported("allocating ahead with a block map".into()));
        }
        let keeps = !matches!(what, Fallocate::Allocate | Fallocate::Zero { keep_size: false });
        inode.mtime = time::now();
        inode.ctime = inode.mtime;
        match what {
            Fallocate::Allocate | Fallocate::KeepSize => {
                if !keeps && end > inode.size {
                    self.zero_behind_end(&inode, end)?;
                }
                let (first, last) = self.covering(offset, end);
                self.with_space(|| self.allocate_range(&mut inode, (first, last), false, rights))?;
            }
            Fallocate::Punch => {
                let (first, last) = self.zero_edges(&inode, offset, end)?;
                self.free_range(&mut inode, first, last)?;
            }
            Fallocate::Zero { .. } => {
                let (first, last) = self.zero_edges(&inode, offset, end)?;
                self.with_space(|| self.allocate_range(&mut inode, (first, last), true, rights))?;
                let (first, last) = self.covering(offset, end);
                self.with_space(|| self.allocate_range(&mut inode, (first, last), false, rights))?;
            }
            Fallocate::Collapse => self.collapse(&mut inode, offset, end)?,
            Fallocate::Insert => self.insert(&mut inode, offset, length)?,
        }
        if !keeps {
            inode.size = inode.size.max(end);
        }
        self.save_alone(&inode)
    }

    /// The blocks that a range touches.
    fn covering(&self, offset: u64, end: u64) -> (u64, u64) {
        let bits = self.geometry.block_bits;
        (offset >> bits, end.div_ceil(self.geometry.block_size.into()))
    }

    /// Zeros what a range has of blocks at its ends; tells the whole blocks in between.
    fn zero_edges(&self, inode: &Inode, offset: u64, end: u64) -> Result<(u64, u64)> {
        let size = u64::from(self.geometry.block_size);
        let first = offset.next_multiple_of(size);
        self.zero_within(inode, offset, first.min(end))?;
        let last = end / size * size;
        if last >= first {
            self.zero_within(inode, last, end)?;
        }
        Ok((first / size, (last / size).max(first / size)))
    }

    /// Gives blocks to all holes of `from..to`. With `zero`, what was written counts as never written as well.
    fn allocate_range(
        &self,
        inode: &mut Inode,
        (from, to): (u64, u64),
        zero: bool,
        rights: ReservedAccess,
    ) -> Result<()> {
        let mut at = from;
        while at < to {
            let most = (to - at).min(MAX_UNWRITTEN_BLOCKS.into()) as u32;
            let run = map::map(&self.geometry, &self.store, inode, at as u32, most)?;
            let logical = at as u32;
            match run.place {
                Mapping::Hole => {
                    let mut reservation = self.reserve(inode, logical, run.length, rights)?;
                    let (start, length) = (reservation.start, reservation.count);
                    let piece = MappedExtent { logical, length, start, written: false };
                    let mut handle = self.store.begin(1 + map::CREDITS + 2)?;
                    map::replace(self, &mut handle, inode, (at, piece.end()), &[piece])?;
                    reservation.take(&mut handle, length)?;
                    inode.blocks += self.units(length.into());
                    inode.save(&mut handle)?;
                    handle.complete();
                    at = piece.end();
                }
                Mapping::Written(start) if zero => {
                    let piece = MappedExtent { logical, length: run.length, start, written: false };
                    let mut handle = self.store.begin(1 + map::CREDITS)?;
                    map::replace(self, &mut handle, inode, (at, piece.end()), &[piece])?;
                    inode.save(&mut handle)?;
                    handle.complete();
                    at = piece.end();
                }
                Mapping::Written(_) | Mapping::Unwritten(_) => at += u64::from(run.length),
            }
        }
        Ok(())
    }
}
