//! Inodes that are to be freed or cut after a crash: those without names that somebody still uses, and those of which
//! more is freed than one transaction holds.
//!
//! They stand in the orphan file where there is one with room, and else in a list that begins in the superblock and goes
//! on in the inodes' time of deletion.

mod file;
mod list;
mod mount;
#[cfg(test)]
mod tests;

use crate::orphan_lists::OrphanLists;

use crate::buffer::Handle;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::Inode;

pub(crate) use file::fill_sum;

/// Blocks that [`add`] or [`remove`] may change: a block of the orphan file, or the neighbour in the list, and the superblock.
pub(crate) const CREDITS: u32 = 3;

impl Filesystem {
    /// An inode that may be changed; its lock is held. Without links it is in use for as long as it is noted here: what was
    /// freed still looks like an inode, and blocks that it got would be nobody's.
    ///
    /// # Errors
    /// As [`inode`](Self::inode).
    pub(crate) fn living(&self, number: u32) -> Result<Inode> {
        let inode = self.inode(number)?;
        match inode.links > 0 || self.orphans.holds(number) {
            true => Ok(inode),
            false => Err(Error::NotFound),
        }
    }
}

/// Notes an inode, and saves it.
pub(crate) fn add(fs: &Filesystem, handle: &mut Handle<'_>, inode: &mut Inode) -> Result<()> {
    let mut state = fs.orphans.0.lock();
    if state.holds(inode.number) {
        return inode.save(handle);
    }
    let OrphanLists { file, list } = &mut *state;
    if let Some(file) = file
        && file.add(handle, inode.number)?
    {
        return inode.save(handle);
    }
    list.add(handle, inode)
}

/// Strikes an inode out; nothing happens where it is not noted. It is to be saved.
pub(crate) fn remove(fs: &Filesystem, handle: &mut Handle<'_>, inode: &mut Inode) -> Result<()> {
    let mut state = fs.orphans.0.lock();
    if let Some(file) = &mut state.file
        && file.remove(handle, inode.number)?
    {
        return Ok(());
    }
    state.list.remove(handle, inode)
}
