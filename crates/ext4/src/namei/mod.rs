//! Directory operations: create, link, unlink and rename.
//!
//! Each operation locks the inodes that it changes, checks its preconditions, and makes all changes through one handle: after a
//! crash it has happened completely or not at all.
//!
//! Lock order: the lock for renames between directories, then directories from the root down (by number if neither contains the
//! other), then inodes in them by number, then the handle.

mod attributes;
mod create;
mod dir_txn;
mod inherit;
mod link;
mod lookup;
pub(crate) mod new_inode;
pub(crate) mod nlink;
mod rename;
mod resolve;

pub use attributes::NewInode;
pub use create::NewInodeKind;
pub(crate) use dir_txn::DirTransaction;
pub use rename::{Move, RenameMode};

use crate::directory::{self, Found, INSERT_BLOCKS, MAX_NAME_BYTES};
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};
use crate::layout::InodeFlags;

/// Number of blocks that inserting a name may change if the directory has room, including the directory's inode.
const ENTER_CREDITS: u32 = 2;

/// Number of blocks that removing a name may change, including the directory's inode.
const LEAVE_CREDITS: u32 = 2;

/// Checks a name to create; `.` and `..` always exist.
fn check_new(name: &[u8]) -> Result<()> {
    match name {
        [] => Err(Error::NotFound),
        b"." | b".." => Err(Error::Exists),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Error::Invalid),
        _ if name.len() > MAX_NAME_BYTES => Err(Error::NameTooLong),
        _ => Ok(()),
    }
}

/// Checks a name to remove.
fn check_old(name: &[u8]) -> Result<()> {
    match name {
        b"." => Err(Error::Invalid),
        b".." => Err(Error::NotEmpty),
        _ if name.len() > MAX_NAME_BYTES => Err(Error::NameTooLong),
        _ => Ok(()),
    }
}

impl Filesystem {
    /// Returns a directory whose names are to be changed. The caller holds its lock.
    fn parent(&self, number: u32) -> Result<Inode> {
        let parent = self.inode(number)?;
        if parent.kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        // A removed directory that is still open.
        if parent.links == 0 {
            return Err(Error::NotFound);
        }
        if parent.flags.contains(InodeFlags::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        Ok(parent)
    }

    /// Number of blocks that inserting a name may change, including the directory's inode.
    fn enter_credits(&self, parent: &Inode, name: &[u8]) -> Result<u32> {
        match directory::has_room(&self.directory(parent), name)? {
            true => Ok(ENTER_CREDITS),
            // The blocks of the directory, and the cost of each of four new ones.
            false => Ok(1 + INSERT_BLOCKS + 4 * new_inode::GROW_CREDITS),
        }
    }

    /// Looks up a name like [`find`](Self::find); `None` if it does not exist.
    fn found(&self, parent: &Inode, name: &[u8]) -> Result<Option<Found>> {
        match self.directory(parent).find(name) {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Number of blocks checked against reserved space for a directory's growth: one if it is full, like the kernel's initial
/// estimate.
fn growth(enter_credits: u32) -> u32 {
    u32::from(enter_credits > ENTER_CREDITS)
}

/// Checks that names may be removed: an append-only directory only accepts new ones.
fn check_leave(parent: &Inode) -> Result<()> {
    if parent.flags.contains(InodeFlags::APPEND) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Checks that an inode is not immutable or append-only: its names must not change either.
fn check_fixed(inode: &Inode) -> Result<()> {
    let fixed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if inode.flags.intersects(fixed) { Err(Error::NotPermitted) } else { Ok(()) }
}
