//! SEEK_DATA and SEEK_HOLE: by inode number, under the inode's lock; and for an inode that the caller has read.

use crate::block_mapping::Mapping;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::layout::InodeFlags;
use crate::map;

impl Filesystem {
    /// Returns the first byte at or behind `offset` that is data (`SEEK_DATA`); unwritten extents are holes.
    ///
    /// # Errors
    /// [`Error::NoData`] if no data follows before the end of the file, [`Error::Corrupt`], [`Error::Io`].
    pub fn seek_data(&self, number: u32, offset: u64) -> Result<u64> {
        self.seek_in(number, offset, true)?.ok_or(Error::NoData)
    }

    /// Returns the first byte at or behind `offset` that is in a hole (`SEEK_HOLE`); the end of the file counts as one.
    ///
    /// # Errors
    /// [`Error::NoData`] beyond the end of the file, [`Error::Corrupt`], [`Error::Io`].
    pub fn seek_hole(&self, number: u32, offset: u64) -> Result<u64> {
        self.seek_in(number, offset, false)?.ok_or(Error::NoData)
    }

    fn seek_in(&self, number: u32, offset: u64, data: bool) -> Result<Option<u64>> {
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
            if matches!(run.mapping, Mapping::Written(_)) == data {
                return Ok(Some((at << bits).max(offset)));
            }
            at += u64::from(run.length);
        }
        Ok((!data).then_some(inode.size))
    }

    /// Returns the first byte from `offset` on that is not in a hole; `None` if no data follows.
    ///
    /// Unwritten extents count as holes, as they read as zeros.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt), [`Error::Io`](crate::Error::Io).
    pub fn next_data(&self, inode: &Inode, offset: u64) -> Result<Option<u64>> {
        Ok(self.next_in(inode, offset, true)?.filter(|&found| found < inode.size))
    }

    /// Returns the first byte from `offset` on that is in a hole; the end of a file counts as one. `None` beyond the end.
    ///
    /// # Errors
    /// The errors of [`next_data`](Self::next_data).
    pub fn next_hole(&self, inode: &Inode, offset: u64) -> Result<Option<u64>> {
        self.next_in(inode, offset, false)
    }

    fn next_in(&self, inode: &Inode, offset: u64, data: bool) -> Result<Option<u64>> {
        if offset >= inode.size {
            return Ok(None);
        }
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            return Ok(Some(if data { offset } else { inode.size }));
        }
        let bits = self.geometry.block_bits;
        let mut at = offset;
        while at < inode.size {
            let Ok(logical) = u32::try_from(at >> bits) else { break };
            let run = self.map(inode, logical, u32::MAX)?;
            if matches!(run.mapping, Mapping::Written(_)) == data {
                return Ok(Some(at));
            }
            at = (u64::from(run.logical) + u64::from(run.length)) << bits;
        }
        Ok(Some(inode.size))
    }
}
