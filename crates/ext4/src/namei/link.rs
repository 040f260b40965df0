//! Link, unlink and rmdir.

use super::{DirTransaction, LEAVE_CREDITS, check_fixed, check_leave, check_new, check_old, growth, nlink};
use crate::allocate::ReservedAccess;
use crate::buffer::Handle;
use crate::directory::{self, Link};
use crate::error::{Corruption, Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};
use crate::{orphans, time};

impl Filesystem {
    /// Adds a name of an inode that is not a directory. An [unnamed](Self::create_tmpfile) file gets its first name.
    ///
    /// # Errors
    /// The errors of [`create`](Self::create); [`Error::NotPermitted`] for directories and for immutable or append-only inodes.
    pub fn link(&self, number: u32, parent: u32, name: &[u8]) -> Result<Inode> {
        self.link_as(number, parent, name, ReservedAccess::Reserved)
    }

    /// Adds a name like [`link`](Self::link), with these [`rights`](Self::rights) to the blocks by which the directory may grow.
    ///
    /// # Errors
    /// The errors of [`link`](Self::link).
    pub fn link_as(&self, number: u32, parent: u32, name: &[u8], rights: ReservedAccess) -> Result<Inode> {
        let _lock = self.locks.write(parent);
        self.with_space(|| self.link_locked(number, parent, name, rights))
    }

    fn link_locked(&self, number: u32, parent: u32, name: &[u8], rights: ReservedAccess) -> Result<Inode> {
        let mut parent = self.parent(parent)?;
        check_new(name)?;
        self.check_key(&parent, name)?;
        if self.found(&parent, name)?.is_some() {
            return Err(Error::Exists);
        }
        // Checked without the inode's lock first: a directory's lock must not be taken after that of a directory below it.
        if self.inode(number)?.kind == Kind::Directory {
            return Err(Error::NotPermitted);
        }
        let _lock = self.locks.write(number);
        let mut inode = self.inode_in_use(number)?;
        if inode.kind == Kind::Directory {
            return Err(Error::NotPermitted);
        }
        check_fixed(&inode)?;
        nlink::check_room(&self.geometry, &inode)?;
        let enter = self.enter_credits(&parent, name)?;
        self.allocator()?.check(growth(enter), rights)?;
        let mut handle = self.store.begin(enter + orphans::CREDITS + 1)?;
        let link = Link { name, inode: number, kind: inode.kind };
        let entered = directory::insert(
            &mut DirTransaction { fs: self, handle: &mut handle, inode: &mut parent },
            &link,
        );
        if let Err(error) = entered {
            parent.save(&mut handle)?;
            handle.complete();
            return Err(error);
        }
        if inode.links == 0 {
            orphans::remove(self, &mut handle, &mut inode)?;
        }
        nlink::add(&self.geometry, &mut inode);
        inode.ctime = time::now();
        (parent.mtime, parent.ctime) = (inode.ctime, inode.ctime);
        inode.save(&mut handle)?;
        parent.save(&mut handle)?;
        handle.record(number.into());
        handle.complete();
        Ok(inode)
    }

    /// Removes a name of an inode that is not a directory; returns the inode. If it has no links left, it is freed by
    /// [`evict_inode`](Self::evict_inode).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`], [`Error::NotDirectory`], [`Error::NotPermitted`] if directory or inode are
    /// immutable or append-only, [`Error::ReadOnly`], [`Error::Corrupt`], [`Error::Io`].
    pub fn unlink(&self, parent: u32, name: &[u8]) -> Result<Inode> {
        self.remove_dentry(parent, name, false)
    }

    /// Removes an empty directory; returns its inode.
    ///
    /// # Errors
    /// The errors of [`unlink`](Self::unlink); [`Error::NotEmpty`].
    pub fn remove_directory(&self, parent: u32, name: &[u8]) -> Result<Inode> {
        self.remove_dentry(parent, name, true)
    }

    fn remove_dentry(&self, parent: u32, name: &[u8], directory: bool) -> Result<Inode> {
        let _parent_lock = self.locks.write(parent);
        let mut parent = self.parent(parent)?;
        check_old(name)?;
        let name = &*self.stored_name(&parent, name)?;
        let found = self.found(&parent, name)?.ok_or(Error::NotFound)?;
        if found.inode == parent.number {
            return Err(self.leads_up(&parent, name));
        }
        let _lock = self.locks.write(found.inode);
        let mut inode = self.child(&parent, name, found.inode)?;
        check_leave(&parent)?;
        check_fixed(&inode)?;
        match (inode.kind == Kind::Directory, directory) {
            (true, false) => return Err(Error::IsDirectory),
            (false, true) => return Err(Error::NotDirectory),
            (true, true) if !directory::is_empty(&self.directory(&inode))? => return Err(Error::NotEmpty),
            _ => {}
        }
        let mut handle = self.store.begin(LEAVE_CREDITS + orphans::CREDITS + 1)?;
        directory::remove(
            &mut DirTransaction { fs: self, handle: &mut handle, inode: &mut parent },
            &found,
            name,
        )?;
        let now = time::now();
        if directory {
            nlink::drop(&mut parent);
        }
        (parent.mtime, parent.ctime) = (now, now);
        parent.save(&mut handle)?;
        inode.ctime = now;
        self.lose_name(&mut handle, &mut inode)?;
        handle.record(inode.number.into());
        handle.complete();
        Ok(inode)
    }

    /// Drops a link of an inode and saves it. Without links, the inode becomes an orphan.
    pub(super) fn lose_name(&self, handle: &mut Handle<'_>, inode: &mut Inode) -> Result<()> {
        if inode.kind == Kind::Directory {
            inode.links = 0;
        } else {
            nlink::drop(inode);
        }
        if inode.links == 0 {
            return orphans::add(self, handle, inode);
        }
        inode.save(handle)
    }

    /// Returns the inode of a name. The caller holds the inode's lock.
    pub(super) fn child(&self, parent: &Inode, name: &[u8], number: u32) -> Result<Inode> {
        let inode = self.target(parent, name, number)?;
        if inode.links == 0 {
            let what = format!("name {} references inode {number}, which has no links", name.escape_ascii());
            return Err(Corruption::new(what).inode(parent.number).into());
        }
        Ok(inode)
    }

    pub(super) fn leads_up(&self, parent: &Inode, name: &[u8]) -> Error {
        let what =
            format!("name {} references the directory itself or one of its ancestors", name.escape_ascii());
        Corruption::new(what).inode(parent.number).into()
    }
}
