//! Preallocation and the other operations of `fallocate(2)`.

use crate::allocate::ReservedAccess;
use crate::block_mapping::Mapping;
use crate::buffer;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::layout::InodeFlags;
use crate::map::{self, MappedExtent};
use crate::time;

/// Operation on a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallocate {
    /// Allocates the range, and extends the file to its end.
    Allocate,
    /// Allocates the range without changing the file size.
    KeepSize,
    /// Frees the range, which then reads as zeros, without changing the file size.
    Punch,
    /// Allocates the range and makes it read as zeros.
    Zero {
        /// Leaves the file size unchanged.
        keep_size: bool,
    },
    /// Removes the range and moves the data behind it forward. Whole blocks within the file only.
    Collapse,
    /// Inserts a hole of the range's length before it. Whole blocks within the file only.
    Insert,
}

/// Recorded once all extents of a collapse or insert are moved and the size is saved. No block has this number.
const SHIFTED: u64 = u64::MAX;

/// Maximum length of an unwritten extent in blocks.
const MAX_UNWRITTEN_BLOCKS: u32 = 32767;

impl Filesystem {
    /// Allocates or frees a range of a file, in bytes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for files without extents, except for punching; [`Error::Invalid`] for ranges that must be whole
    /// blocks within the file; the errors of [`write`](Self::write).
    pub fn fallocate(&self, number: u32, mode: Fallocate, offset: u64, length: u64) -> Result<()> {
        self.fallocate_as(number, mode, (offset, length), ReservedAccess::Reserved)
    }

    /// Performs [`fallocate`](Self::fallocate) on a range (offset and length) with these rights.
    ///
    /// # Errors
    /// The errors of `fallocate`; [`Error::NoSpace`] also if only reserved blocks are left.
    pub fn fallocate_as(
        &self,
        number: u32,
        mode: Fallocate,
        (offset, length): (u64, u64),
        rights: ReservedAccess,
    ) -> Result<()> {
        let _lock = self.locks.write(number);
        let mut inode = self.regular(number)?;
        let shifts = matches!(mode, Fallocate::Collapse | Fallocate::Insert);
        if shifts && buffer::earlier() == Some(SHIFTED) {
            return Ok(());
        }
        let end = offset.checked_add(length).filter(|_| length > 0).ok_or(Error::Invalid)?;
        if end > self.largest(&inode) {
            return Err(Error::TooLarge);
        }
        if !self.store.is_writable() {
            return Err(Error::ReadOnly);
        }
        if mode != Fallocate::Punch && !inode.flags.contains(InodeFlags::EXTENTS) {
            return Err(Error::Unsupported("preallocation in a file with a block map".into()));
        }
        let keeps = !matches!(mode, Fallocate::Allocate | Fallocate::Zero { keep_size: false });
        inode.mtime = time::now();
        inode.ctime = inode.mtime;
        match mode {
            Fallocate::Allocate | Fallocate::KeepSize => {
                if !keeps && end > inode.size {
                    self.zero_behind_end(&inode, end)?;
                }
                let (first, last) = self.covering(offset, end);
                self.with_space(|| self.allocate_range(&mut inode, (first, last), false, rights))?;
            }
            Fallocate::Punch => {
                let (first, last) = self.zero_edges(&inode, offset, end)?;
                self.free_block_range(&mut inode, first, last)?;
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
        self.save_alone_recording(&inode, shifts.then_some(SHIFTED))
    }

    /// Returns the blocks that overlap a range.
    fn covering(&self, offset: u64, end: u64) -> (u64, u64) {
        let bits = self.geometry.block_bits;
        (offset >> bits, end.div_ceil(self.geometry.block_size.into()))
    }

    /// Zeroes the partial blocks at the ends of a range; returns the whole blocks in between.
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

    /// Allocates all holes of `from..to`. With `zero`, also converts written extents to unwritten ones.
    fn allocate_range(
        &self,
        inode: &mut Inode,
        (from, to): (u64, u64),
        zero: bool,
        rights: ReservedAccess,
    ) -> Result<()> {
        let mut at = from;
        while at < to {
            let limit = (to - at).min(MAX_UNWRITTEN_BLOCKS.into()) as u32;
            let run = map::map(&self.geometry, &self.store, inode, at as u32, limit)?;
            let logical = at as u32;
            match run.mapping {
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
