//! Reference counts of inodes (FUSE nlookup): an unlinked inode is removed once its count drops to zero.
//!
//! A process that continues the mount of another one does not know that one's counts. It takes every inode as referenced until the
//! kernel forgets it: the kernel forgets an inode as a whole.

use std::collections::HashSet;

use parking_lot::{Mutex, MutexGuard};
use shunt_sharded::{Number as _, ReferenceCounts, Sharded};

/// Sharded table of reference counts. Most references are lookups of the kernel.
#[derive(Debug, Default)]
pub(crate) struct LookupCounts {
    counts: Sharded<Mutex<ReferenceCounts<u64>>>,
    /// An earlier process handed out references, too.
    inherited: bool,
    /// Unlinked inodes that the kernel has forgotten, and that are still open.
    forgotten: Mutex<HashSet<u64>>,
}

impl LookupCounts {
    /// `inherited`: an earlier process handed out references that are not counted here.
    pub(crate) fn new(inherited: bool) -> Self {
        Self { inherited, ..Self::default() }
    }

    fn shard(&self, num: u64) -> MutexGuard<'_, ReferenceCounts<u64>> {
        self.counts.by_low_bits(num.group()).lock()
    }

    pub(crate) fn is_inherited(&self) -> bool {
        self.inherited
    }

    pub(crate) fn add(&self, num: u64) {
        if self.inherited {
            self.forgotten.lock().remove(&num);
        }
        self.shard(num).add(num);
    }

    /// Drops references; reports whether it was the last one, as far as is known.
    pub(crate) fn remove(&self, num: u64, references: u64) -> bool {
        let mut shard = self.shard(num);
        let was_last = shard.remove(num, references);
        was_last || self.inherited && !shard.contains(num)
    }

    /// Notes that an unlinked inode that is still open has no reference.
    pub(crate) fn note_forgotten(&self, num: u64) {
        if self.inherited {
            self.forgotten.lock().insert(num);
        }
    }

    pub(crate) fn contains(&self, num: u64) -> bool {
        self.shard(num).contains(num) || self.inherited && !self.forgotten.lock().contains(&num)
    }

    /// Notes that an inode was removed.
    pub(crate) fn removed(&self, num: u64) {
        if self.inherited {
            self.forgotten.lock().remove(&num);
        }
    }

    /// Reports whether only an earlier process can have handed out a reference.
    pub(crate) fn is_doubtful(&self, num: u64) -> bool {
        self.inherited && !self.shard(num).contains(num)
    }

    /// Returns all inodes that have counted references.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.counts.iter().flat_map(|shard| shard.lock().numbers()).collect()
    }

    pub(crate) fn len(&self) -> u64 {
        self.counts.iter().map(|shard| shard.lock().len()).sum()
    }
}
