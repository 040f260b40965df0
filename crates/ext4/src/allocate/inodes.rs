//! Inode allocation: taking and freeing inodes, with the counts in the group descriptors.

use std::sync::atomic::Ordering;

use super::{Allocator, bitmap, bitmap::Map, bits::Bits};
use crate::buffer::Handle;
use crate::error::{Corruption, Error, Result};
use crate::layout::GroupDescriptor;

fn count(low: zerocopy::little_endian::U16, high: zerocopy::little_endian::U16) -> u32 {
    u32::from(high.get()) << 16 | u32::from(low.get())
}

/// Adds to the counts of free inodes and of directories in a descriptor.
fn add(raw: &mut GroupDescriptor, inodes: i64, directories: i64) -> Result<()> {
    let free = i64::from(count(raw.free_inodes_count_lo, raw.free_inodes_count_hi)) + inodes;
    let used = i64::from(count(raw.used_dirs_count_lo, raw.used_dirs_count_hi)) + directories;
    let (Ok(free), Ok(used)) = (u32::try_from(free), u32::try_from(used)) else {
        return Err(Corruption::new(format!(
            "group descriptor: count of free inodes becomes {free}, of directories {used}"
        ))
        .into());
    };
    raw.free_inodes_count_lo.set(free as u16);
    raw.free_inodes_count_hi.set((free >> 16) as u16);
    raw.used_dirs_count_lo.set(used as u16);
    raw.used_dirs_count_hi.set((used >> 16) as u16);
    Ok(())
}

/// Updates a descriptor for an inode taken in its group.
pub(super) fn describe_taken(
    raw: &mut GroupDescriptor,
    inodes_per_group: u32,
    bit: u32,
    directory: bool,
) -> Result<()> {
    let unused = count(raw.itable_unused_lo, raw.itable_unused_hi).min(inodes_per_group - bit - 1);
    raw.itable_unused_lo.set(unused as u16);
    raw.itable_unused_hi.set((unused >> 16) as u16);
    add(raw, -1, directory.into())
}

impl Allocator {
    /// Takes a free inode: for a file near its parent, for a directory in a group chosen by the Orlov allocator.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(crate) fn take_inode(
        &self,
        handle: &mut Handle<'_>,
        parent: u32,
        directory: bool,
        top: bool,
    ) -> Result<u32> {
        let geometry = handle.store().geometry();
        let (home, _) = geometry.locate_inode(parent)?;
        let first = if directory { self.place_directory(handle.store(), home, top) } else { home };
        let groups = self.groups.len() as u32;
        for step in 0..groups {
            let number = (first + step) % groups;
            if self.groups[number as usize].inodes.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if let Some(inode) = self.take_inode_in(handle, number, directory)? {
                return Ok(inode);
            }
        }
        Err(Error::NoSpace)
    }

    fn take_inode_in(&self, handle: &mut Handle<'_>, number: u32, directory: bool) -> Result<Option<u32>> {
        let store = handle.store();
        let geometry = store.geometry();
        let group = &self.groups[number as usize];
        let _locked = group.locked.lock();
        let bits = Bits::new(&bitmap::read(store, number, Map::Inodes)?, geometry.inodes_per_group);
        // Never allocate reserved inodes, even if the bitmap is corrupt.
        let reserved = if number == 0 { geometry.first_inode - 1 } else { 0 };
        let Some((bit, _)) = bits.find(reserved, 1) else {
            group.inodes.store(0, Ordering::Relaxed);
            return Ok(None);
        };
        self.mark_inode(handle, number, bit, directory)?;
        Ok(Some(number * geometry.inodes_per_group + bit + 1))
    }

    /// Frees an inode.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is reserved or not in use.
    pub(crate) fn free_inode(&self, handle: &mut Handle<'_>, inode: u32, directory: bool) -> Result<()> {
        let store = handle.store();
        let geometry = store.geometry();
        let (number, bit) = geometry.locate_inode(inode)?;
        if inode < geometry.first_inode {
            return Err(Corruption::new("a reserved inode cannot be freed").inode(inode).into());
        }
        let group = &self.groups[number as usize];
        let _locked = group.locked.lock();
        bitmap::change(handle, number, Map::Inodes, (bit, 1), false, |raw| {
            add(raw, 1, -i64::from(directory))
        })?;
        group.inodes.fetch_add(1, Ordering::Relaxed);
        if directory {
            group.directories.fetch_sub(1, Ordering::Relaxed);
        }
        store.add_free(handle, 0, 1);
        Ok(())
    }
}
