//! Reference counts of inodes (FUSE nlookup): an unlinked inode is removed once its count drops to zero.

use parking_lot::{Mutex, MutexGuard};
use shunt_sharded::{Number as _, ReferenceCounts, Sharded};

/// Sharded table of reference counts. Most references are lookups of the kernel.
#[derive(Debug, Default)]
pub(crate) struct LookupCounts(Sharded<Mutex<ReferenceCounts<u64>>>);

impl LookupCounts {
    fn shard(&self, num: u64) -> MutexGuard<'_, ReferenceCounts<u64>> {
        self.0.by_low_bits(num.group()).lock()
    }

    pub(crate) fn add(&self, num: u64) {
        self.shard(num).add(num);
    }

    /// Drops references; reports whether it was the last one.
    pub(crate) fn remove(&self, num: u64, references: u64) -> bool {
        self.shard(num).remove(num, references)
    }

    pub(crate) fn contains(&self, num: u64) -> bool {
        self.shard(num).contains(num)
    }

    /// Returns all inodes that have references.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.0.iter().flat_map(|shard| shard.lock().numbers()).collect()
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(|shard| shard.lock().len()).sum()
    }
}
