//! Inodes, names and attributes are looked up.

use crate::directory::{self, Directory, Entry};
use crate::error::{Corruption, Error, Result};
use crate::filesystem::{Filesystem, ROOT};
use crate::inline;
use crate::inode::{Inode, Kind};
use crate::layout::InodeFlags;
use crate::xattr::Xattrs;

impl Filesystem {
    /// An inode that is in use.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a free one, [`Error::Corrupt`], [`Error::Io`].
    pub fn inode(&self, number: u32) -> Result<Inode> {
        Inode::read(&self.geometry, &self.store, number)
    }

    /// Finds a name in a directory.
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

    /// The inode that a name leads to, as [`list`](Self::list) told it of this directory.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for an inode that no name leads to: a reserved or a free one. [`Error::Io`].
    pub fn follow(&self, directory: &Inode, entry: &Entry) -> Result<Inode> {
        self.target(directory, &entry.name, entry.inode)
    }

    pub(crate) fn target(&self, directory: &Inode, name: &[u8], number: u32) -> Result<Inode> {
        let wrong = |what: String| {
            let what = format!("the name {} leads to {what}", name.escape_ascii());
            Error::Corrupt(Corruption::new(what).inode(directory.number))
        };
        // Only the root and what it needs lies below the first free inode.
        if number < self.geometry.first_inode && number != ROOT {
            return Err(wrong(format!("the reserved inode {number}")));
        }
        self.inode(number).map_err(|error| match error {
            Error::NotFound => wrong(format!("inode {number}, which is free")),
            error => error,
        })
    }

    /// Tells the names of a directory from `offset` on (0 at first, then an entry's `next`), until `take` returns
    /// false. Those of an encrypted one are shown as the kernel shows them without the key, and are found by that.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], [`Error::Corrupt`], [`Error::Io`].
    pub fn list(&self, directory: &Inode, offset: u64, take: impl FnMut(Entry) -> bool) -> Result<()> {
        self.list_shown(directory, offset, take)
    }

    /// As [`list`](Self::list), names as they are stored.
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

    /// The names of an inode's extended attributes.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn xattr_names(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        self.xattrs(inode).names()
    }

    /// The value of an extended attribute; `None` where there is none of this name.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn xattr(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.xattrs(inode).get(name, |number, size| {
            let holder = self.inode(number)?;
            if !holder.flags.contains(InodeFlags::EA_INODE) || holder.size != u64::from(size) {
                return Err(Corruption::new("holds no attribute of this size").inode(number).into());
            }
            let mut value = vec![0; size as usize];
            self.read(&holder, 0, &mut value)?;
            Ok(value)
        })
    }

    /// Walks a path from the root. Symbolic links are not followed, and `..` is a name like any other.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn walk(&self, path: &[u8]) -> Result<Inode> {
        let mut inode = self.inode(ROOT)?;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            inode = self.find(&inode, name)?;
        }
        Ok(inode)
    }
}
