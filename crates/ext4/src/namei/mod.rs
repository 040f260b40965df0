//! Names come, go, and move.
//!
//! Each operation takes the locks of the inodes that it changes, looks whether it may be done, and then does all of it
//! through one handle: after a crash it happened as a whole, or not at all.
//!
//! Order of locks: the one for moves between directories, then directories from the root down (by number where neither
//! is in the other), then what is in them by number, then the handle.

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

pub use attributes::New;
pub use create::NewInodeKind;
pub(crate) use dir_txn::DirTransaction;
pub use rename::{Move, MoveMode};

use crate::directory::{self, Found, INSERT_BLOCKS, MAX_NAME_BYTES};
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::{Inode, Kind};
use crate::layout::InodeFlags;

/// Blocks that entering a name may change where there is room for it, the inode of the directory included.
const ENTER_CREDITS: u32 = 2;

/// Blocks that taking a name out may change, the inode of the directory included.
const LEAVE_CREDITS: u32 = 2;

/// A name that can be made; `.` and `..` are there already.
fn check_new(name: &[u8]) -> Result<()> {
    match name {
        [] => Err(Error::NotFound),
        b"." | b".." => Err(Error::Exists),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Error::Invalid),
        _ if name.len() > MAX_NAME_BYTES => Err(Error::NameTooLong),
        _ => Ok(()),
    }
}

/// A name that can be taken out.
fn check_old(name: &[u8]) -> Result<()> {
    match name {
        b"." => Err(Error::Invalid),
        b".." => Err(Error::NotEmpty),
        _ if name.len() > MAX_NAME_BYTES => Err(Error::NameTooLong),
        _ => Ok(()),
    }
}

impl Filesystem {
    /// A directory in which names are to be changed; its lock is held.
    fn parent(&self, number: u32) -> Result<Inode> {
        let parent = self.inode(number)?;
        if parent.kind != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        // It was removed, and somebody still has it open.
        if parent.links == 0 {
            return Err(Error::NotFound);
        }
        if parent.flags.contains(InodeFlags::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        Ok(parent)
    }

    /// Blocks that entering a name may change, the inode of the directory included.
    fn enter_credits(&self, parent: &Inode, name: &[u8]) -> Result<u32> {
        match directory::has_room(&self.directory(parent), name)? {
            true => Ok(ENTER_CREDITS),
            // Those of the directory, and what each of four new ones takes.
            false => Ok(1 + INSERT_BLOCKS + 4 * new_inode::GROW_CREDITS),
        }
    }

    /// What a name leads to, as [`find`](Self::find) checks it.
    fn found(&self, parent: &Inode, name: &[u8]) -> Result<Option<Found>> {
        match self.directory(parent).find(name) {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Blocks that a directory takes, to a user who may not have all: one where it is full, as the kernel counts at first.
fn growth(enter_credits: u32) -> u32 {
    u32::from(enter_credits > ENTER_CREDITS)
}

/// Names may be entered into such a directory, but not taken out.
fn check_leave(parent: &Inode) -> Result<()> {
    if parent.flags.contains(InodeFlags::APPEND) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Nothing of such an inode may change, its names least of all.
fn check_fixed(inode: &Inode) -> Result<()> {
    let fixed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if inode.flags.intersects(fixed) { Err(Error::NotPermitted) } else { Ok(()) }
}
