//! Files whose content another component, such as the kernel, writes directly to the device. This module allocates blocks ahead
//! of such writes, marks them as written afterwards, and frees them. It never accesses content.
//!
//! New blocks are unwritten extents, which read as zeros until [`Filesystem::convert_unwritten`] is called for them: after a
//! crash, they do not expose stale content.

use std::ops::Range;

use super::fiemap::Extent;
use crate::allocate::ReservedAccess;
use crate::block_mapping::Mapping;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};
use crate::layout::InodeFlags;
use crate::map::{self, MappedExtent};
use crate::time;
use crate::time::Time;

/// Maximum length of an unwritten extent in blocks.
const MAX_UNWRITTEN_BLOCKS: u64 = 32767;

/// Number of ranges that one handle converts.
const MAX_CONVERTED_EXTENTS: usize = 8;

impl Filesystem {
    /// Reports whether the content of a file can be written directly: it is in extents and in plain form.
    pub fn is_mappable(&self, inode: &Inode) -> bool {
        let not_plain = InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT | InodeFlags::VERITY;
        inode.kind == Kind::Regular
            && inode.flags.contains(InodeFlags::EXTENTS)
            && !inode.flags.intersects(not_plain)
    }

    /// Allocates unwritten blocks for all holes of a range of bytes and, if the file continues behind it and space is plentiful,
    /// up to `ahead` bytes more. Adds them to `allocated`, even on failure.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for files without extents; [`Error::NoSpace`], [`Error::TooLarge`], [`Error::ReadOnly`],
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn allocate_unwritten(
        &self,
        number: u32,
        range: Range<u64>,
        ahead: u64,
        rights: ReservedAccess,
        allocated: &mut Vec<Extent>,
    ) -> Result<()> {
        let _lock = self.locks.write(number);
        let mut inode = self.mapped(number)?;
        if range.end > self.largest(&inode) {
            return Err(Error::TooLarge);
        }
        let bits = self.geometry.block_bits;
        let end = range.end.div_ceil(1 << bits);
        let mut at = range.start >> bits;
        self.with_space(|| {
            while at < end {
                at = self.allocate_first(&mut inode, at..end, ahead >> bits, rights, allocated)?;
            }
            Ok(())
        })
    }

    /// Allocates blocks at the start of the range if it starts with a hole; returns the offset reached.
    fn allocate_first(
        &self,
        inode: &mut Inode,
        range: Range<u64>,
        ahead: u64,
        rights: ReservedAccess,
        allocated: &mut Vec<Extent>,
    ) -> Result<u64> {
        let at = range.start;
        let longest = map::longest(&self.geometry, inode);
        let requested = range.end - at;
        let ahead = if self.allocator()?.has_plenty((requested + ahead).min(u32::MAX.into()) as u32) {
            ahead
        } else {
            0
        };
        let limit = (requested + ahead).min(longest - at).min(MAX_UNWRITTEN_BLOCKS) as u32;
        let run = map::map(&self.geometry, &self.store, inode, at as u32, limit)?;
        if run.mapping != Mapping::Hole {
            return Ok(at + u64::from(run.length));
        }
        let bits = self.geometry.block_bits;
        let mut reservation = self.reserve(inode, at as u32, run.length, rights)?;
        let (start, length) = (reservation.start, reservation.count);
        let bytes = u64::from(length) << bits;
        let Some(device) = self.store.device().backing_offset(start << bits, bytes) else {
            return Err(Error::Unsupported(
                "direct access to a device whose blocks have no fixed location".into(),
            ));
        };
        let piece = MappedExtent { logical: at as u32, length, start, written: false };
        let mut handle = self.store.begin(1 + map::CREDITS + 2)?;
        map::replace(self, &mut handle, inode, (at, piece.end()), &[piece])?;
        reservation.take(&mut handle, length)?;
        inode.blocks += self.units(length.into());
        inode.save(&mut handle)?;
        handle.complete();
        allocated.push(Extent { offset: at << bits, device, length: bytes, written: false });
        Ok(piece.end())
    }

    /// Marks ranges of bytes, rounded to whole blocks, as written; extends the file to at least `size`; and sets the modification
    /// time. The device must have the content before the next commit.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a range has no blocks; [`Error::NoSpace`] for mapping metadata, with the ranges before it converted;
    /// [`Error::ReadOnly`], [`Error::Corrupt`], [`Error::Io`].
    pub fn convert_unwritten(
        &self,
        number: u32,
        ranges: &[Range<u64>],
        size: u64,
        changed: Option<Time>,
    ) -> Result<()> {
        let _lock = self.locks.write(number);
        let mut inode = self.mapped(number)?;
        let mut changes_inode = size > inode.size;
        // The size changes with the first handle, so that no crash leaves written blocks beyond the end.
        inode.size = inode.size.max(size);
        if let Some(changed) = changed.filter(|changed| *changed != inode.mtime) {
            changes_inode = true;
            inode.mtime = changed;
            inode.ctime = inode.ctime.max(changed);
        }
        let bits = self.geometry.block_bits;
        let mut pieces = Vec::new();
        for range in ranges {
            let (mut at, end) = (range.start >> bits, range.end.div_ceil(1 << bits));
            while at < end {
                let limit = (end - at).min(u32::MAX.into()) as u32;
                let run = map::map(&self.geometry, &self.store, &inode, at as u32, limit)?;
                match run.mapping {
                    Mapping::Written(_) => {}
                    Mapping::Hole => return Err(Error::Invalid),
                    Mapping::Unwritten(start) => {
                        pieces.push(MappedExtent {
                            logical: at as u32,
                            length: run.length,
                            start,
                            written: true,
                        });
                    }
                }
                at += u64::from(run.length);
                if pieces.len() == MAX_CONVERTED_EXTENTS {
                    self.enter_pieces(&mut inode, &std::mem::take(&mut pieces))?;
                    changes_inode = false;
                }
            }
        }
        if changes_inode || !pieces.is_empty() { self.enter_pieces(&mut inode, &pieces) } else { Ok(()) }
    }

    fn enter_pieces(&self, inode: &mut Inode, pieces: &[MappedExtent]) -> Result<()> {
        let mut handle = self.store.begin(1 + pieces.len() as u32 * map::CREDITS)?;
        let mut enter = |piece: &MappedExtent| {
            let range = (piece.logical.into(), piece.end());
            map::replace(self, &mut handle, inode, range, std::slice::from_ref(piece)).map(drop)
        };
        let result = pieces.iter().try_for_each(&mut enter);
        match result {
            // `NoSpace` occurs before the piece is changed.
            Ok(()) | Err(Error::NoSpace) => {}
            result => return result,
        }
        inode.save(&mut handle)?;
        handle.complete();
        result
    }

    /// Truncates a file to `size` and frees all blocks beyond it. The writer of the content zeroes the rest of the last block.
    ///
    /// # Errors
    /// The errors of [`truncate`](Self::truncate).
    pub fn truncate_mapped(&self, number: u32, size: u64) -> Result<()> {
        let _lock = self.locks.write(number);
        let mut inode = self.mapped(number)?;
        if size > self.largest(&inode) {
            return Err(Error::TooLarge);
        }
        self.release(number);
        inode.size = size;
        inode.mtime = time::now();
        inode.ctime = inode.mtime;
        self.cut(&mut inode, size)
    }

    /// Frees the whole blocks of a range of bytes. With `touch`, updates the modification time.
    ///
    /// # Errors
    /// The errors of [`truncate`](Self::truncate).
    pub fn free_range(&self, number: u32, range: Range<u64>, touch: bool) -> Result<()> {
        let _lock = self.locks.write(number);
        let mut inode = self.mapped(number)?;
        if touch {
            inode.mtime = time::now();
            inode.ctime = inode.mtime;
        }
        let bits = self.geometry.block_bits;
        let first = range.start.div_ceil(1 << bits);
        self.free_block_range(&mut inode, first, range.end >> bits)?;
        if touch { self.save_alone(&inode) } else { Ok(()) }
    }

    fn mapped(&self, number: u32) -> Result<Inode> {
        let inode = self.regular(number)?;
        if !self.store.is_writable() {
            return Err(Error::ReadOnly);
        }
        if !self.is_mappable(&inode) {
            return Err(Error::Unsupported("unwritten extents in a file with a block map".into()));
        }
        Ok(inode)
    }
}
