//! The complete block map of a file, for callers that read the device directly.

use crate::block_mapping::Mapping;
use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};
use crate::layout::InodeFlags;

/// A contiguous range of a file. All numbers are bytes; all but `device` are multiples of the block size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Offset within the file.
    pub offset: u64,
    /// Offset within the file or block device that backs the [`Device`](crate::device::Device).
    pub device: u64,
    /// Length of the range.
    pub length: u64,
    /// The range is written; an unwritten one reads as zeros.
    pub written: bool,
}

impl Extent {
    /// Reports whether `next` continues this extent.
    fn is_continued_by(&self, next: &Self) -> bool {
        self.offset + self.length == next.offset
            && self.device + self.length == next.device
            && self.written == next.written
    }
}

impl Filesystem {
    /// Returns the extents of a regular file, in order. Ranges in no extent read as zeros.
    ///
    /// Returns `None` if the device does not hold the content in plain form (it is inline, encrypted, verity-protected, or not
    /// yet checkpointed), and if there are more than `limit` extents.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt), [`Error::Io`](crate::Error::Io).
    pub fn extents(&self, inode: &Inode, limit: usize) -> Result<Option<Vec<Extent>>> {
        let Ok(blocks) = u32::try_from(inode.size.div_ceil(self.geometry.block_size.into())) else {
            return Ok(None);
        };
        self.extents_before(inode, blocks, limit)
    }

    /// Returns the extents of a regular file including those beyond its end; otherwise like [`extents`](Self::extents).
    ///
    /// # Errors
    /// The errors of `extents`.
    pub fn all_extents(&self, inode: &Inode, limit: usize) -> Result<Option<Vec<Extent>>> {
        let longest = crate::map::longest(&self.geometry, inode);
        self.extents_before(inode, longest.min(u32::MAX.into()) as u32, limit)
    }

    fn extents_before(&self, inode: &Inode, blocks: u32, limit: usize) -> Result<Option<Vec<Extent>>> {
        let not_plain = InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT | InodeFlags::VERITY;
        if inode.kind != Kind::Regular || inode.flags.intersects(not_plain) {
            return Ok(None);
        }
        let bits = self.geometry.block_bits;
        let mut extents: Vec<Extent> = Vec::new();
        let (mut logical, mut lookups) = (0, 0);
        while logical < blocks {
            // At most one hole separates two extents, but block maps report a hole in several parts.
            lookups += 1;
            if lookups > limit.saturating_mul(4) {
                return Ok(None);
            }
            let run = self.map(inode, logical, blocks - logical)?;
            let (block, written) = match run.mapping {
                Mapping::Hole => (None, false),
                Mapping::Written(block) => (Some(block), true),
                Mapping::Unwritten(block) => (Some(block), false),
            };
            let length = u64::from(run.length) << bits;
            if let Some(block) = block {
                let Some(device) = self.store.device().backing_offset(block << bits, length) else {
                    return Ok(None);
                };
                let extent = Extent { offset: u64::from(logical) << bits, device, length, written };
                let full = extents.len() >= limit;
                match extents.last_mut() {
                    Some(last) if last.is_continued_by(&extent) => last.length += length,
                    _ if full => return Ok(None),
                    _ => extents.push(extent),
                }
            }
            logical = logical.saturating_add(run.length);
        }
        Ok(Some(extents))
    }

    /// Returns the offset of a range of a file within the file that backs the device, if the range is stored there contiguously
    /// and in plain form. Callers can then have the kernel copy the data.
    ///
    /// # Errors
    /// The errors of `extents`.
    pub fn in_one_piece(&self, inode: &Inode, offset: u64, length: u32) -> Result<Option<u64>> {
        let bits = self.geometry.block_bits;
        let end = offset.checked_add(length.into()).filter(|&end| end <= inode.size);
        let (Some(end), Ok(logical)) = (end, u32::try_from(offset >> bits)) else { return Ok(None) };
        let not_plain = InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT;
        if length == 0 || inode.kind != Kind::Regular || inode.flags.intersects(not_plain) {
            return Ok(None);
        }
        let blocks = end.div_ceil(1 << bits) - u64::from(logical);
        let run = self.map(inode, logical, blocks.min(u32::MAX.into()) as u32)?;
        let Mapping::Written(block) = run.mapping else { return Ok(None) };
        if u64::from(run.length) < blocks {
            return Ok(None);
        }
        let start = (block << bits) + (offset & u64::from(self.geometry.block_size - 1));
        Ok(self.store.device().backing_offset(start, length.into()))
    }
}
