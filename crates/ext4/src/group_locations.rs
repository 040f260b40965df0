//! Where the parts of groups lie, remembered: every look at an inode asks, and every change of a bitmap, and the answer
//! never changes. The descriptors that have it lie in one block, where all processors would meet.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::superblock::Geometry;

/// A block, or 0 where it is not known yet: there lies a superblock or a boot sector.
type Known = AtomicU64;

#[derive(Debug, Default)]
struct Parts {
    inode_table: Known,
    /// Of bitmaps that were written.
    block_bitmap: Known,
    inode_bitmap: Known,
}

/// What is known of the groups that were asked for.
#[derive(Debug)]
pub(crate) struct GroupLocations(Box<[Parts]>);

/// Groups of which it is remembered, from the first on.
const REMEMBERED: usize = 1 << 15;

impl GroupLocations {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let count = (geometry.groups as usize).min(REMEMBERED);
        Self((0..count).map(|_| Parts::default()).collect())
    }

    /// The first block of the group's inode table, if it is remembered.
    pub(crate) fn inode_table(&self, group: u32) -> Option<u64> {
        let known = self.0.get(group as usize)?.inode_table.load(Ordering::Relaxed);
        (known != 0).then_some(known)
    }

    /// Remembers the first block of the group's inode table.
    pub(crate) fn remember_inode_table(&self, group: u32, place: u64) {
        if let Some(parts) = self.0.get(group as usize) {
            parts.inode_table.store(place, Ordering::Relaxed);
        }
    }

    /// The bitmap of blocks or inodes, where it is known that it was written.
    pub(crate) fn bitmap(&self, group: u32, inodes: bool) -> Option<u64> {
        let known = self.0.get(group as usize)?.bitmap(inodes).load(Ordering::Relaxed);
        (known != 0).then_some(known)
    }

    /// The bitmap was written: it will not be an unwritten one again.
    pub(crate) fn remember_bitmap(&self, group: u32, inodes: bool, place: u64) {
        if let Some(parts) = self.0.get(group as usize) {
            parts.bitmap(inodes).store(place, Ordering::Relaxed);
        }
    }
}

impl Parts {
    fn bitmap(&self, inodes: bool) -> &Known {
        if inodes { &self.inode_bitmap } else { &self.block_bitmap }
    }
}
