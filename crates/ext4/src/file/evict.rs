//! Deletion of inodes without links (`ext4_evict_inode`).

use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};
use crate::layout::InodeFlags;
use crate::{orphans, time, xattr};

impl Filesystem {
    /// Frees an inode without links, and all its blocks. Call it after the last use: until then the inode is on the orphan list,
    /// and after a crash the next mount frees it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an inode with links; [`Error::ReadOnly`], [`Error::Corrupt`], [`Error::Io`].
    pub fn evict_inode(&self, number: u32) -> Result<()> {
        let _lock = self.locks.write(number);
        let mut inode = self.inode_in_use(number)?;
        if inode.links > 0 || number < self.geometry.first_inode {
            return Err(Error::Invalid);
        }
        self.release(number);
        let mapped = match inode.kind {
            Kind::Regular | Kind::Directory => true,
            Kind::Symlink => !inode.is_short_link(&self.geometry),
            _ => false,
        };
        if mapped && !inode.flags.contains(InodeFlags::INLINE_DATA) {
            inode.size = 0;
            self.cut(&mut inode, 0)?;
        }
        let mut handle = self.store.begin(3 + xattr::CREDITS + orphans::CREDITS)?;
        xattr::release(self, &mut handle, &mut inode)?;
        orphans::remove(self, &mut handle, &mut inode)?;
        inode.size = 0;
        inode.save(&mut handle)?;
        Inode::set_deletion(&mut handle, number, time::now().seconds as u32)?;
        self.allocator()?.free_inode(&mut handle, number, inode.kind == Kind::Directory)?;
        handle.complete();
        Ok(())
    }
}
