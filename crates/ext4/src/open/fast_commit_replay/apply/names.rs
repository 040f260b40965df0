//! Replay of directory entry changes, and of the link counts that follow from them.

use super::{Apply, wrong};
use crate::directory::{self, INSERT_BLOCKS, Link, Target};
use crate::error::{Error, Result};
use crate::filesystem::ROOT;
use crate::inode::{Inode, Kind};
use crate::namei::new_inode::GROW_CREDITS;
use crate::namei::{DirTransaction, nlink};

/// Number of blocks that inserting a name may change, including two inodes.
const ENTER_CREDITS: u32 = 2 + INSERT_BLOCKS + 4 * GROW_CREDITS;

impl Apply<'_> {
    /// Returns the directory that a change names; `None` if it no longer exists.
    fn parent(&mut self, number: u32, name: &[u8]) -> Result<Option<Inode>> {
        let named = !name.is_empty() && !matches!(name, b"." | b"..") && !name.contains(&b'/');
        if !named || name.contains(&0) || name.len() > directory::MAX_NAME_BYTES {
            return Err(wrong(format!("invalid name {}", name.escape_ascii()), number));
        }
        if number < self.fs.geometry.first_inode && number != ROOT || number > self.fs.geometry.inodes {
            return Err(wrong("directory inode number is reserved or out of range", number));
        }
        let parent = self.inode(number)?.filter(|parent| parent.links > 0);
        if parent.as_ref().is_some_and(|parent| parent.kind == Kind::Directory) {
            self.directories.insert(number);
        }
        Ok(parent)
    }

    /// Inserts a name unless it exists; reports whether it was inserted.
    fn enter(&mut self, parent: u32, inode: &Inode, name: &[u8]) -> Result<bool> {
        let Some(mut parent) = self.parent(parent, name)? else { return Ok(false) };
        if parent.kind != Kind::Directory {
            return Err(wrong("name in an inode that is not a directory", parent.number));
        }
        match self.fs.directory(&parent).find(name) {
            Ok(found) if found.inode == inode.number => return Ok(false),
            Ok(found) => {
                let what = format!("name {} already references inode {}", name.escape_ascii(), found.inode);
                return Err(wrong(what, parent.number));
            }
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
        let mut handle = self.fs.store.begin(ENTER_CREDITS)?;
        let link = Link { name, inode: inode.number, kind: inode.kind };
        directory::insert(
            &mut DirTransaction { fs: self.fs, handle: &mut handle, inode: &mut parent },
            &link,
        )?;
        parent.mtime = parent.mtime.max(inode.ctime);
        parent.ctime = parent.ctime.max(inode.ctime);
        self.save(&mut handle, &parent)?;
        Ok(true)
    }

    /// Inserts the first name of a new inode.
    pub(super) fn create(&mut self, parent: u32, mut inode: Inode, name: &[u8]) -> Result<()> {
        if inode.kind == Kind::Directory {
            if inode.number == parent || inode.number == ROOT {
                return Err(wrong("directory contains itself", parent));
            }
            if self.parent(parent, name)?.is_none() {
                return Ok(());
            }
            self.directories.insert(inode.number);
            if inode.size == 0 {
                self.add_first_block(&mut inode, parent)?;
            }
        }
        self.enter(parent, &inode, name)?;
        if inode.kind != Kind::Directory {
            let mut handle = self.fs.store.begin(1)?;
            inode.links = 1;
            self.save(&mut handle, &inode)?;
        }
        Ok(())
    }

    /// Adds the first block of a new directory.
    fn add_first_block(&self, inode: &mut Inode, parent: u32) -> Result<()> {
        let mut handle = self.fs.store.begin(1 + GROW_CREDITS)?;
        let own = inode.number;
        DirTransaction { fs: self.fs, handle: &mut handle, inode }.append(|block, geometry| {
            directory::make_first(block, geometry, own, parent);
            Ok(())
        })?;
        self.save(&mut handle, inode)
    }

    /// Inserts another name of an inode.
    pub(super) fn link(&mut self, parent: u32, mut inode: Inode, name: &[u8]) -> Result<()> {
        if inode.kind == Kind::Directory {
            return Err(wrong("second name of a directory", inode.number));
        }
        if self.enter(parent, &inode, name)? {
            let mut handle = self.fs.store.begin(1)?;
            inode.links = inode.links.saturating_add(1).min(u16::MAX.into());
            self.save(&mut handle, &inode)?;
        }
        Ok(())
    }

    /// Removes a name.
    pub(super) fn unlink(&mut self, parent: u32, number: u32, name: &[u8]) -> Result<()> {
        let parent = self.parent(parent, name)?.filter(|parent| parent.kind == Kind::Directory);
        let Some(mut parent) = parent else { return Ok(()) };
        let found = match self.fs.directory(&parent).find(name) {
            Ok(found) if found.inode == number => found,
            // The name refers to another inode by now.
            Ok(_) | Err(Error::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        };
        let Some(mut inode) = self.inode(number)? else {
            return Err(wrong(
                format!("name {} references a free inode", name.escape_ascii()),
                parent.number,
            ));
        };
        if inode.kind == Kind::Directory {
            if number == ROOT || number == parent.number || !directory::is_empty(&self.fs.directory(&inode))?
            {
                return Err(wrong("directory to be removed is not empty", number));
            }
            inode.links = 0;
        } else {
            nlink::drop(&mut inode);
        }
        let mut handle = self.fs.store.begin(3)?;
        directory::remove(
            &mut DirTransaction { fs: self.fs, handle: &mut handle, inode: &mut parent },
            &found,
            name,
        )?;
        parent.save(&mut handle).map_err(|error| error.of_inode(parent.number))?;
        self.save(&mut handle, &inode)
    }

    /// Sets the link count of directories: two, plus the number of subdirectories.
    pub(super) fn count_directories(&mut self) -> Result<()> {
        for number in self.directories.clone() {
            let Some(mut inode) = self.inode(number)? else { continue };
            if inode.kind != Kind::Directory {
                continue;
            }
            let mut directories = 0;
            let mut unknown = Vec::new();
            self.fs.list(&inode, 0, |entry| {
                if !matches!(&*entry.name, b"." | b"..") {
                    match entry.kind {
                        Some(kind) => directories += u64::from(kind == Kind::Directory),
                        None => unknown.push(entry.inode),
                    }
                }
                true
            })?;
            for number in unknown {
                directories += u64::from(self.fs.inode(number)?.kind == Kind::Directory);
            }
            let links = nlink::of_directory(&self.fs.geometry, &inode, directories);
            // A link count of 1 means that subdirectories are not counted.
            if inode.links != links && inode.links != 1 {
                inode.links = links;
                let mut handle = self.fs.store.begin(1)?;
                self.save(&mut handle, &inode)?;
            }
        }
        Ok(())
    }
}
