//! Files: their content written, cut, allocated and freed.

mod cut;
mod fallocate;
mod pending;
mod reap;
mod seek;
mod shift;
mod write;
mod zero;

pub use fallocate::Fallocate;

use crate::allocate::For;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};
use crate::layout::InodeFlags;
use crate::map::{self, Place};

impl Filesystem {
    /// An inode of which the content can be changed; its lock is held.
    fn regular(&self, number: u32) -> Result<Inode> {
        let inode = self.inode(number)?;
        match inode.kind {
            Kind::Regular => {}
            Kind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid),
        }
        if inode.flags.contains(InodeFlags::ENCRYPT) {
            return Err(Error::NoKey);
        }
        if inode.flags.intersects(InodeFlags::INLINE_DATA | InodeFlags::VERITY) {
            return Err(Error::Unsupported("content in the inode or verified".into()));
        }
        Ok(inode)
    }

    /// Where new blocks of a file should lie: behind those before them, or near the inode.
    fn goal(&self, inode: &Inode, logical: u32) -> Result<(u64, For)> {
        if let Some(before) = logical.checked_sub(1)
            && let Place::Written(block) | Place::Unwritten(block) =
                map::map(&self.geometry, &self.store, inode, before, 1)?.place
        {
            return Ok((block + 1, For::Growth));
        }
        let (group, _) = self.geometry.locate_inode(inode.number)?;
        Ok((self.geometry.group_start(group), For::Data))
    }

    /// Runs `change` again once what was freed can be given out again, if it finds no space without that.
    pub(crate) fn with_space<T>(&self, mut change: impl FnMut() -> Result<T>) -> Result<T> {
        match change() {
            Err(Error::NoSpace) if self.allocator()?.waits() => {
                self.store.sync()?;
                self.allocator()?.sweep(&self.store)?;
                change()
            }
            result => result,
        }
    }

    /// Units of 512 bytes of so many blocks.
    fn units(&self, blocks: u64) -> u64 {
        blocks << (self.geometry.block_bits - 9)
    }
}
