//! All of a file's map at once, for who reads the device by itself.

use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};
use crate::layout::InodeFlags;
use crate::mapped_range::Mapping;

/// A stretch of a file that lies in one piece. All numbers are bytes, and multiples of the block size but for `device`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in the file.
    pub offset: u64,
    /// Where it begins in the file, or on the block device, that the device was made of.
    pub device: u64,
    /// How long it is.
    pub length: u64,
    /// Its content lies there; else it reads as zeros.
    pub written: bool,
}

impl Extent {
    /// Whether `next` goes on where this one ends.
    fn goes_on(&self, next: &Self) -> bool {
        self.offset + self.length == next.offset
            && self.device + self.length == next.device
            && self.written == next.written
    }
}

impl Filesystem {
    /// Where the content of a regular file lies, in order. What is in no extent reads as zeros.
    ///
    /// `None` where the device does not hold the content as it is (it lies in the inode, is encrypted, is to be verified,
    /// or is not yet back from the journal), and where there are more than `most` extents.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt), [`Error::Io`](crate::Error::Io).
    pub fn extents(&self, inode: &Inode, most: usize) -> Result<Option<Vec<Extent>>> {
        let Ok(blocks) = u32::try_from(inode.size.div_ceil(self.geometry.block_size.into())) else {
            return Ok(None);
        };
        self.extents_before(inode, blocks, most)
    }

    /// As [`extents`](Self::extents), with what lies behind the end as well.
    ///
    /// # Errors
    /// As `extents`.
    pub fn all_extents(&self, inode: &Inode, most: usize) -> Result<Option<Vec<Extent>>> {
        let longest = crate::map::longest(&self.geometry, inode);
        self.extents_before(inode, longest.min(u32::MAX.into()) as u32, most)
    }

    fn extents_before(&self, inode: &Inode, blocks: u32, most: usize) -> Result<Option<Vec<Extent>>> {
        let elsewhere = InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT | InodeFlags::VERITY;
        if inode.kind != Kind::Regular || inode.flags.intersects(elsewhere) {
            return Ok(None);
        }
        let bits = self.geometry.block_bits;
        let mut extents: Vec<Extent> = Vec::new();
        let (mut logical, mut looks) = (0, 0);
        while logical < blocks {
            // Between two extents lies a hole at most; block maps show holes in parts.
            looks += 1;
            if looks > most.saturating_mul(4) {
                return Ok(None);
            }
            let run = self.map(inode, logical, blocks - logical)?;
            let (block, written) = match run.place {
                Mapping::Hole => (None, false),
                Mapping::Written(block) => (Some(block), true),
                Mapping::Unwritten(block) => (Some(block), false),
            };
            let length = u64::from(run.length) << bits;
            if let Some(block) = block {
                let Some(device) = self.store.device().place(block << bits, length) else { return Ok(None) };
                let extent = Extent { offset: u64::from(logical) << bits, device, length, written };
                let full = extents.len() >= most;
                match extents.last_mut() {
                    Some(last) if last.goes_on(&extent) => last.length += length,
                    _ if full => return Ok(None),
                    _ => extents.push(extent),
                }
            }
            logical = logical.saturating_add(run.length);
        }
        Ok(Some(extents))
    }
}
