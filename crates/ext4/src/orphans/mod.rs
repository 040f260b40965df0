//! Orphans: inodes to be freed or truncated after a crash. They are unlinked inodes still in use, and inodes whose truncation
//! takes more than one transaction.
//!
//! They are recorded in the orphan file if it exists and has a free slot, else in a linked list that starts in the superblock and
//! continues in the inodes' deletion times.

mod file;
mod list;
mod mount;
#[cfg(test)]
mod tests;

use crate::orphan_slots::OrphanLists;

use crate::buffer::Handle;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::Inode;

pub(crate) use file::fill_sum;

/// Number of blocks that [`add`] or [`remove`] may change: a block of the orphan file, or the neighbour in the list, and the
/// superblock.
pub(crate) const CREDITS: u32 = 3;

impl Filesystem {
    /// Returns an inode that may be changed. The caller holds its lock. An inode without links is in use only while it is
    /// recorded here: a freed one still looks like an inode, and blocks added to it would be lost.
    ///
    /// # Errors
    /// The errors of [`inode`](Self::inode), and [`Error::NotFound`] for a freed inode.
    pub(crate) fn inode_in_use(&self, number: u32) -> Result<Inode> {
        let inode = self.inode(number)?;
        match inode.links > 0 || self.orphans.contains(number) {
            true => Ok(inode),
            false => Err(Error::NotFound),
        }
    }
}

/// Records an inode as an orphan, and saves it.
pub(crate) fn add(fs: &Filesystem, handle: &mut Handle<'_>, inode: &mut Inode) -> Result<()> {
    let mut state = fs.orphans.0.lock();
    if state.contains(inode.number) {
        return inode.save(handle);
    }
    let OrphanLists { file, list } = &mut *state;
    if let Some(file) = file {
        if file.add(handle, inode.number)? {
            return inode.save(handle);
        }
    }
    list.add(handle, inode)
}

/// Removes an inode from the orphans, if it is recorded. The caller must save it.
pub(crate) fn remove(fs: &Filesystem, handle: &mut Handle<'_>, inode: &mut Inode) -> Result<()> {
    let mut state = fs.orphans.0.lock();
    if let Some(file) = &mut state.file {
        if file.remove(handle, inode.number)? {
            return Ok(());
        }
    }
    state.list.remove(handle, inode)
}
