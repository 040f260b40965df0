//! Cache of the locations of inode tables and bitmaps, which never change. Every inode access and bitmap change needs them, and
//! the descriptors that hold them lie in one block, where all processors would contend.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::superblock::Geometry;

/// A block number, or 0 if unknown: block 0 holds a superblock or a boot sector.
type CachedBlockNumber = AtomicU64;

#[derive(Debug, Default)]
struct Parts {
    inode_table: CachedBlockNumber,
    /// Set only for bitmaps that are initialised.
    block_bitmap: CachedBlockNumber,
    inode_bitmap: CachedBlockNumber,
}

/// Known locations, by group.
#[derive(Debug)]
pub(crate) struct GroupLocations(Box<[Parts]>);

/// Number of groups, from the first on, whose locations are cached.
const MAX_CACHED_GROUPS: usize = 1 << 15;

impl GroupLocations {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let count = (geometry.groups as usize).min(MAX_CACHED_GROUPS);
        Self((0..count).map(|_| Parts::default()).collect())
    }

    /// Returns the first block of the group's inode table, if it is cached.
    pub(crate) fn inode_table(&self, group: u32) -> Option<u64> {
        let block = self.0.get(group as usize)?.inode_table.load(Ordering::Relaxed);
        (block != 0).then_some(block)
    }

    /// Caches the first block of the group's inode table.
    pub(crate) fn cache_inode_table(&self, group: u32, block: u64) {
        if let Some(parts) = self.0.get(group as usize) {
            parts.inode_table.store(block, Ordering::Relaxed);
        }
    }

    /// Returns the block of the block or inode bitmap if the bitmap is known to be initialised.
    pub(crate) fn bitmap(&self, group: u32, inodes: bool) -> Option<u64> {
        let block = self.0.get(group as usize)?.bitmap(inodes).load(Ordering::Relaxed);
        (block != 0).then_some(block)
    }

    /// Records that a bitmap is initialised, which it then remains.
    pub(crate) fn cache_bitmap(&self, group: u32, inodes: bool, block: u64) {
        if let Some(parts) = self.0.get(group as usize) {
            parts.bitmap(inodes).store(block, Ordering::Relaxed);
        }
    }
}

impl Parts {
    fn bitmap(&self, inodes: bool) -> &CachedBlockNumber {
        if inodes { &self.inode_bitmap } else { &self.block_bitmap }
    }
}
