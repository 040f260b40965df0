//! File content: reading, writing, truncation, allocation and deletion.

mod dio;
mod evict;
mod fallocate;
mod fiemap;
mod pending;
mod read;
mod seek;
mod shift_extents;
mod source;
mod truncate;
mod write;
mod zero;

pub use fallocate::Fallocate;
pub use fiemap::Extent;
pub(crate) use read::MAX_TARGET_BYTES;
pub use source::{ForeignData, WriteSource};

use crate::allocate::{Growing, Purpose, Reservation, ReservedAccess};
use crate::block_mapping::Mapping;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};
use crate::layout::InodeFlags;
use crate::map;

impl Filesystem {
    /// Returns an inode whose content can be changed. The caller holds its lock.
    fn regular(&self, number: u32) -> Result<Inode> {
        let inode = self.inode_in_use(number)?;
        match inode.kind {
            Kind::Regular => {}
            Kind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid),
        }
        if inode.flags.contains(InodeFlags::ENCRYPT) {
            return Err(Error::NoKey);
        }
        if inode.flags.intersects(InodeFlags::INLINE_DATA | InodeFlags::VERITY) {
            return Err(Error::Unsupported("changes to inline or fs-verity content".into()));
        }
        Ok(inode)
    }

    /// Reserves blocks for a hole of a file or its start: behind the preceding blocks of the file, or near the inode.
    fn reserve(
        &self,
        inode: &Inode,
        logical: u32,
        want: u32,
        rights: ReservedAccess,
    ) -> Result<Reservation<'_>> {
        let allocator = self.allocator()?;
        if let Some(before) = logical.checked_sub(1) {
            let place = map::map(&self.geometry, &self.store, inode, before, 1)?.mapping;
            if let Mapping::Written(block) | Mapping::Unwritten(block) = place {
                let file = Growing { inode: inode.number, blocks: logical.into() };
                return allocator.reserve_growth(&self.store, file, (block + 1, want), rights);
            }
        }
        let (group, _) = self.geometry.locate_inode(inode.number)?;
        let goal = self.geometry.group_start(group);
        allocator.reserve(&self.store, goal, want, (Purpose::Data, rights))
    }

    /// Releases the reservation window of a file. Call it after the last writer has closed the file.
    pub fn release(&self, number: u32) {
        if let Ok(allocator) = self.allocator() {
            allocator.release_window(number);
        }
    }

    /// Runs `change`; if it finds no space, commits to make freed blocks available and runs it again.
    pub(crate) fn with_space<T>(&self, mut change: impl FnMut() -> Result<T>) -> Result<T> {
        match change() {
            Err(Error::NoSpace) if self.allocator()?.has_pending_frees() => {
                self.store.sync()?;
                self.allocator()?.sweep(&self.store)?;
                change()
            }
            result => result,
        }
    }

    /// Converts blocks to units of 512 bytes.
    fn units(&self, blocks: u64) -> u64 {
        blocks << (self.geometry.block_bits - 9)
    }
}
