//! Allocation of blocks and inodes by number, for fast-commit replay, where the journal names them.

use std::sync::atomic::Ordering;

use super::{Allocator, bitmap, bitmap::Map, bits, blocks::add_blocks, inodes};
use crate::buffer::{Handle, MetadataCache};
use crate::error::Result;

impl Allocator {
    /// Marks these blocks, which lie in one group, as used.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) if a block is not free, or belongs to group metadata or the journal.
    pub(crate) fn claim(&self, handle: &mut Handle<'_>, start: u64, count: u32) -> Result<()> {
        let store = handle.store();
        let geometry = store.geometry();
        store.check_file_blocks(start, count.into())?;
        let offset = start - u64::from(geometry.first_data_block);
        let number = (offset / u64::from(geometry.blocks_per_group)) as u32;
        let at = (offset % u64::from(geometry.blocks_per_group)) as u32;
        let mut locked = self.lock(store, number)?;
        bitmap::change(handle, number, Map::Blocks, (at, count), true, |raw| {
            add_blocks(raw, -i64::from(count))
        })?;
        store.add_free(handle, -i64::from(count), 0);
        if let Some(busy) = &mut locked.busy {
            busy.set(at, count, true);
        }
        self.groups[number as usize].blocks.fetch_sub(count, Ordering::Relaxed);
        self.available.fetch_sub(count.into(), Ordering::Relaxed);
        Ok(())
    }

    /// Marks this inode as used.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) if it is not free.
    pub(crate) fn claim_inode(&self, handle: &mut Handle<'_>, inode: u32, directory: bool) -> Result<()> {
        let (number, bit) = handle.store().geometry().locate_inode(inode)?;
        let group = &self.groups[number as usize];
        let _locked = group.locked.lock();
        self.mark_inode(handle, number, bit, directory)
    }

    /// Reports whether the inode bitmap marks an inode as used.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt), [`Error::Io`](crate::Error::Io).
    pub(crate) fn is_taken(&self, store: &MetadataCache, inode: u32) -> Result<bool> {
        let (number, bit) = store.geometry().locate_inode(inode)?;
        Ok(bits::all(&bitmap::read(store, number, Map::Inodes)?, bit, 1, true))
    }

    /// Marks a free inode as used. The caller holds the group's lock.
    pub(super) fn mark_inode(
        &self,
        handle: &mut Handle<'_>,
        number: u32,
        bit: u32,
        directory: bool,
    ) -> Result<()> {
        let store = handle.store();
        let group = &self.groups[number as usize];
        bitmap::change(handle, number, Map::Inodes, (bit, 1), true, |raw| {
            inodes::describe_taken(raw, store.geometry().inodes_per_group, bit, directory)
        })?;
        group.inodes.fetch_sub(1, Ordering::Relaxed);
        group.directories.fetch_add(directory.into(), Ordering::Relaxed);
        store.add_free(handle, 0, -1);
        Ok(())
    }
}
