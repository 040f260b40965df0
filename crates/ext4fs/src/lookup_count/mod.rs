//! FUSE lookup counts: an inode without names is freed once its count drops to zero.
//!
//! The kernel may hold references to all inodes of an image at once. Nearly all of them have a name and no pending access time,
//! and cost a count only.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use parking_lot::{Mutex, MutexGuard};
use shunt_ext4::Time;
use shunt_sharded::{Number as _, ReferenceCounts, Sharded};

use crate::takeover::LookupMemory;

/// State of an inode at the time the kernel forgot it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ForgottenInode {
    /// The inode has no name any more.
    pub(crate) unlinked: bool,
    /// Access time that is not yet in the image.
    pub(crate) atime: Option<Time>,
}

const SHARDS: usize = 16;

/// Maximum number of pending access times in a shard: 64 Ki in all, in 4 MiB at most.
const MAX_PENDING_ATIMES: usize = 4096;

#[derive(Debug, Default)]
struct Shard {
    lookups: ReferenceCounts<u32>,
    unlinked: HashSet<u32>,
    atimes: HashMap<u32, Time>,
}

/// Sharded table of lookup counts, of inodes without a name, and of pending access times.
#[derive(Debug, Default)]
pub(crate) struct LookupCounts {
    shards: Sharded<Mutex<Shard>, SHARDS>,
    /// Copies of the counts for a successor.
    memory: Option<Arc<LookupMemory>>,
}

impl LookupCounts {
    fn shard(&self, number: u32) -> MutexGuard<'_, Shard> {
        self.shards.by_low_bits(number.group().into()).lock()
    }

    /// Keeps a copy of the counts in memory that outlives the process, and continues with the counts that are in there.
    pub(crate) fn keep_in(&mut self, memory: Arc<LookupMemory>) {
        match memory.counts() {
            Ok(counts) => {
                for (number, count) in counts {
                    self.shard(number).lookups.set(number, count);
                }
            }
            Err(error) => {
                tracing::error!(
                    "cannot read the lookup counts of the earlier daemon: {error}; open files may be lost"
                );
            }
        }
        self.memory = Some(memory);
    }

    /// Increments the lookup count.
    pub(crate) fn increment(&self, number: u32) {
        let mut shard = self.shard(number);
        shard.lookups.add(number);
        self.copy(&shard, number);
    }

    fn copy(&self, shard: &Shard, number: u32) {
        if let Some(memory) = &self.memory {
            memory.store(number, shard.lookups.get(number));
        }
    }

    /// Decrements the lookup count by `lookups`. Returns the state of the inode if the count drops to zero.
    #[must_use]
    pub(crate) fn forget(&self, number: u32, lookups: u64) -> Option<ForgottenInode> {
        let mut shard = self.shard(number);
        let is_last = shard.lookups.remove(number, lookups);
        self.copy(&shard, number);
        if !is_last {
            return None;
        }
        Some(ForgottenInode { unlinked: shard.unlinked.remove(&number), atime: shard.atimes.remove(&number) })
    }

    /// Records that an inode lost its last name. Returns whether it is to be freed at once.
    #[must_use]
    pub(crate) fn mark_unlinked(&self, number: u32) -> bool {
        let mut shard = self.shard(number);
        let is_referenced = shard.lookups.contains(number);
        if is_referenced {
            shard.unlinked.insert(number);
        }
        !is_referenced
    }

    /// Records that an inode has a name, for the first time or again.
    pub(crate) fn name(&self, number: u32) {
        self.shard(number).unlinked.remove(&number);
    }

    /// Stores a pending access time and returns true, if the kernel holds a reference and the table is not full.
    pub(crate) fn record_atime(&self, number: u32, time: Time) -> bool {
        let mut shard = self.shard(number);
        if !shard.lookups.contains(number) {
            return false;
        }
        if let Some(atime) = shard.atimes.get_mut(&number) {
            *atime = time;
            return true;
        }
        let room = shard.atimes.len() < MAX_PENDING_ATIMES;
        if room {
            shard.atimes.insert(number, time);
        }
        room
    }

    /// Returns the pending access time.
    pub(crate) fn atime(&self, number: u32) -> Option<Time> {
        self.shard(number).atimes.get(&number).copied()
    }

    /// Removes and returns the pending access time.
    pub(crate) fn take_atime(&self, number: u32) -> Option<Time> {
        self.shard(number).atimes.remove(&number)
    }

    /// Removes and returns all pending access times.
    pub(crate) fn take_atimes(&self) -> Vec<(u32, Time)> {
        self.shards.iter().flat_map(|shard| std::mem::take(&mut shard.lock().atimes)).collect()
    }

    /// Removes and returns all inodes without a name, at the end of the mount.
    pub(crate) fn take_unlinked(&self) -> Vec<u32> {
        self.shards.iter().flat_map(|shard| std::mem::take(&mut *shard.lock()).unlinked).collect()
    }

    /// Returns the number of inodes with a count.
    pub(crate) fn len(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().lookups.len()).sum()
    }
}

#[cfg(test)]
mod tests;
