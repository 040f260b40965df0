//! SEEK_DATA and SEEK_HOLE by inode number.

use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::layout::InodeFlags;
use crate::map;
use crate::mapped_range::Mapping;

impl Filesystem {
    /// Returns the first byte at or behind `offset` that is data (`SEEK_DATA`); unwritten extents are holes.
    ///
    /// # Errors
    /// [`Error::NoData`] if no data follows before the end of the file, [`Error::Corrupt`], [`Error::Io`].
    pub fn seek_data(&self, number: u32, offset: u64) -> Result<u64> {
        self.seek(number, offset, true)?.ok_or(Error::NoData)
    }

    /// Returns the first byte at or behind `offset` that is in a hole (`SEEK_HOLE`); the end of the file counts as one.
    ///
    /// # Errors
    /// [`Error::NoData`] beyond the end of the file, [`Error::Corrupt`], [`Error::Io`].
    pub fn seek_hole(&self, number: u32, offset: u64) -> Result<u64> {
        self.seek(number, offset, false)?.ok_or(Error::NoData)
    }

    fn seek(&self, number: u32, offset: u64, data: bool) -> Result<Option<u64>> {
        let _lock = self.locks.read(number);
        let inode = self.inode(number)?;
        if offset >= inode.size {
            return Ok(None);
        }
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            return Ok(Some(if data { offset } else { inode.size }));
        }
        let bits = self.geometry.block_bits;
        let mut at = offset >> bits;
        let end =
            inode.size.div_ceil(self.geometry.block_size.into()).min(map::longest(&self.geometry, &inode));
        while at < end {
            let limit = (end - at).min(u32::MAX.into()) as u32;
            let run = map::map(&self.geometry, &self.store, &inode, at as u32, limit)?;
            if matches!(run.place, Mapping::Written(_)) == data {
                return Ok(Some((at << bits).max(offset)));
            }
            at += u64::from(run.length);
        }
        Ok((!data).then_some(inode.size))
    }
}
