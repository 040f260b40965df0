//! SEEK_DATA, SEEK_HOLE, and location of contiguous data on the device.

use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};
use crate::layout::InodeFlags;
use crate::mapped_range::Mapping;

impl Filesystem {
    /// Returns the first byte from `offset` on that is not in a hole; `None` if no data follows.
    ///
    /// Unwritten extents count as holes, as they read as zeros.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt), [`Error::Io`](crate::Error::Io).
    pub fn next_data(&self, inode: &Inode, offset: u64) -> Result<Option<u64>> {
        Ok(self.next(inode, offset, true)?.filter(|&found| found < inode.size))
    }

    /// Returns the first byte from `offset` on that is in a hole; the end of a file counts as one. `None` beyond the end.
    ///
    /// # Errors
    /// The errors of [`next_data`](Self::next_data).
    pub fn next_hole(&self, inode: &Inode, offset: u64) -> Result<Option<u64>> {
        self.next(inode, offset, false)
    }

    fn next(&self, inode: &Inode, offset: u64, data: bool) -> Result<Option<u64>> {
        if offset >= inode.size {
            return Ok(None);
        }
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            return Ok(Some(if data { offset } else { inode.size }));
        }
        let bits = self.geometry.block_bits;
        let mut at = offset;
        while at < inode.size
            && let Ok(logical) = u32::try_from(at >> bits)
        {
            let run = self.map(inode, logical, u32::MAX)?;
            if matches!(run.place, Mapping::Written(_)) == data {
                return Ok(Some(at));
            }
            at = (u64::from(run.logical) + u64::from(run.length)) << bits;
        }
        Ok(Some(inode.size))
    }

    /// Returns the offset of a range of a file within the file that backs the device, if the range is stored there contiguously
    /// and in plain form. Callers can then have the kernel copy the data.
    ///
    /// # Errors
    /// The errors of [`next_data`](Self::next_data).
    pub fn in_one_piece(&self, inode: &Inode, offset: u64, length: u32) -> Result<Option<u64>> {
        let bits = self.geometry.block_bits;
        let end = offset.checked_add(length.into()).filter(|&end| end <= inode.size);
        let (Some(end), Ok(logical)) = (end, u32::try_from(offset >> bits)) else { return Ok(None) };
        let elsewhere = InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT;
        if length == 0 || inode.kind != Kind::Regular || inode.flags.intersects(elsewhere) {
            return Ok(None);
        }
        let blocks = end.div_ceil(1 << bits) - u64::from(logical);
        let run = self.map(inode, logical, blocks.min(u32::MAX.into()) as u32)?;
        let Mapping::Written(block) = run.place else { return Ok(None) };
        if u64::from(run.length) < blocks {
            return Ok(None);
        }
        let start = (block << bits) + (offset & u64::from(self.geometry.block_size - 1));
        Ok(self.store.device().backing_offset(start, length.into()))
    }
}
