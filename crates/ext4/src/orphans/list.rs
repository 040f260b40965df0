//! Orphan list: linked from the superblock through the inodes' deletion times.

use std::collections::HashSet;

use crate::buffer::Handle;
use crate::error::{Corruption, Result};
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::orphan_slots::OrphanList;

impl OrphanList {
    /// Reads the list that a crash left, guarding against cycles.
    pub(super) fn read(fs: &Filesystem) -> Result<Self> {
        let mut list = Vec::new();
        let mut seen = HashSet::new();
        let mut next = fs.superblock.last_orphan.get();
        while next != 0 {
            if next < fs.geometry.first_inode || !seen.insert(next) {
                let what = format!("orphan list: inode {next} is invalid or is listed twice");
                return Err(Corruption::new(what).into());
            }
            list.push(next);
            next = fs.inode(next)?.deletion;
        }
        list.reverse();
        Ok(Self(list))
    }

    pub(super) fn add(&mut self, handle: &mut Handle<'_>, inode: &mut Inode) -> Result<()> {
        inode.save(handle)?;
        Inode::set_deletion(handle, inode.number, self.0.last().copied().unwrap_or(0))?;
        handle.store().change_superblock(handle, |raw| raw.last_orphan.set(inode.number));
        self.0.push(inode.number);
        Ok(())
    }

    pub(super) fn remove(&mut self, handle: &mut Handle<'_>, inode: &mut Inode) -> Result<()> {
        let Some(index) = self.0.iter().position(|&number| number == inode.number) else { return Ok(()) };
        let before = index.checked_sub(1).map_or(0, |index| self.0[index]);
        match self.0.get(index + 1) {
            Some(&after) => Inode::set_deletion(handle, after, before)?,
            None => handle.store().change_superblock(handle, |raw| raw.last_orphan.set(before)),
        }
        Inode::set_deletion(handle, inode.number, 0)?;
        self.0.remove(index);
        Ok(())
    }
}
