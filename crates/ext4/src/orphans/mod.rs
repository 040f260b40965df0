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

use parking_lot::Mutex;

use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::store::Handle;

pub(crate) use file::fill_sum;

/// Blocks that [`add`] or [`remove`] may change: a block of the orphan file, or the neighbour in the list, and the superblock.
pub(crate) const CREDITS: u32 = 3;

/// Which inodes stand where. Locked before anything of the store is.
#[derive(Default)]
pub(crate) struct Orphans(Mutex<State>);

#[derive(Default)]
struct State {
    file: Option<file::Slots>,
    list: list::List,
}

impl Orphans {
    /// Whether there are any in the orphan file.
    pub(crate) fn any_in_file(&self) -> bool {
        self.0.lock().file.as_ref().is_some_and(|file| !file.numbers().is_empty())
    }
}

/// Notes an inode, and saves it.
pub(crate) fn add(fs: &Filesystem, handle: &mut Handle<'_>, inode: &mut Inode) -> Result<()> {
    let mut state = fs.orphans.0.lock();
    let State { file, list } = &mut *state;
    let noted = file.as_ref().is_some_and(|file| file.holds(inode.number)) || list.holds(inode.number);
    if noted {
        return inode.save(handle);
    }
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
