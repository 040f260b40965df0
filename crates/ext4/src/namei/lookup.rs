//! Lookup of inodes, names and extended attributes.

use crate::directory::{self, Directory, Entry};
use crate::error::{Corruption, Error, Result};
use crate::filesystem::{Filesystem, ROOT};
use crate::inline;
use crate::inode::{Inode, Kind};
use crate::layout::InodeFlags;
use crate::xattr::Xattrs;

impl Filesystem {
    /// Returns an inode in use.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a free inode, [`Error::Corrupt`], [`Error::Io`].
    pub fn inode(&self, number: u32) -> Result<Inode> {
        Inode::read(&self.geometry, &self.store, number)
    }

    /// Looks up a name in a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::NameTooLong`], [`Error::Corrupt`], [`Error::Io`].
    pub fn find(&self, directory: &Inode, name: &[u8]) -> Result<Inode> {
        if directory.kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        let stored = &*self.stored_name(directory, name)?;
        let number = if directory.flags.contains(InodeFlags::INLINE_DATA) {
            if name.len() > directory::MAX_NAME_BYTES {
                return Err(Error::NameTooLong);
            }
            let mut found = Err(Error::NotFound);
            self.list_stored(directory, 0, |entry| {
                if entry.name == stored {
                    found = Ok(entry);
                }
                found.is_err()
            })?;
            found?.inode
        } else {
            self.directory(directory).find(stored)?.inode
        };
        self.target(directory, name, number)
    }

    /// Returns the inode of an entry that [`list`](Self::list) returned for this directory.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the inode is free or reserved, which no name may reference. [`Error::Io`].
    pub fn follow(&self, directory: &Inode, entry: &Entry) -> Result<Inode> {
        self.target(directory, &entry.name, entry.inode)
    }

    pub(crate) fn target(&self, directory: &Inode, name: &[u8], number: u32) -> Result<Inode> {
        let wrong = |what: String| {
            let what = format!("name {} references {what}", name.escape_ascii());
            Error::Corrupt(Corruption::new(what).inode(directory.number))
        };
        // Of the inodes below the first unreserved one, only the root may have a name.
        if number < self.geometry.first_inode && number != ROOT {
            return Err(wrong(format!("reserved inode {number}")));
        }
        self.inode(number).map_err(|error| match error {
            Error::NotFound => wrong(format!("free inode {number}")),
            error => error,
        })
    }

    /// Lists the names of a directory from `offset` on (0 at first, then the `next` of an entry), until `take` returns `false`.
    /// Names of an encrypted directory are listed, and looked up, in the kernel's no-key form.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], [`Error::Corrupt`], [`Error::Io`].
    pub fn list(&self, directory: &Inode, offset: u64, take: impl FnMut(Entry) -> bool) -> Result<()> {
        self.list_shown(directory, offset, take)
    }

    /// Lists names in their stored form; otherwise like [`list`](Self::list).
    pub(crate) fn list_stored(
        &self,
        directory: &Inode,
        offset: u64,
        take: impl FnMut(Entry) -> bool,
    ) -> Result<()> {
        if directory.flags.contains(InodeFlags::INLINE_DATA) && directory.kind == Kind::Directory {
            return inline::list(self, directory, offset, take);
        }
        self.directory(directory).list(offset, take)
    }

    pub(crate) fn directory<'a>(&'a self, inode: &'a Inode) -> Directory<'a> {
        Directory { geometry: &self.geometry, store: &self.store, inode }
    }

    fn xattrs<'a>(&'a self, inode: &'a Inode) -> Xattrs<'a> {
        Xattrs { geometry: &self.geometry, store: &self.store, inode }
    }

    /// Returns the names of an inode's extended attributes.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn xattr_names(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        self.xattrs(inode).names()
    }

    /// Returns the value of an extended attribute; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn xattr(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.xattrs(inode).get(name, |number, size| {
            let holder = self.inode(number)?;
            if !holder.flags.contains(InodeFlags::EA_INODE) || holder.size != u64::from(size) {
                return Err(Corruption::new(
                    "extended attribute: the inode does not hold a value of this size",
                )
                .inode(number)
                .into());
            }
            let mut value = vec![0; size as usize];
            self.read(&holder, 0, &mut value)?;
            Ok(value)
        })
    }

    /// Walks a path from the root. Symbolic links are not followed, and `..` is looked up like any other name.
    ///
    /// # Errors
    /// The errors of [`find`](Self::find).
    pub fn walk(&self, path: &[u8]) -> Result<Inode> {
        let mut inode = self.inode(ROOT)?;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            inode = self.find(&inode, name)?;
        }
        Ok(inode)
    }
}
