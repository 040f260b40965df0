//! Reference counts of inodes, whose objects may be unlinked while in use.

use std::collections::HashMap;

use parking_lot::Mutex;
use shunt_sharded::Sharded;

/// Counts references, mostly lookups by the kernel. An unlinked object is removed with its last reference.
#[derive(Debug, Default)]
pub(crate) struct LookupCounts(Sharded<Mutex<HashMap<u64, u64>>>);

impl LookupCounts {
    fn shard(&self, num: u64) -> &Mutex<HashMap<u64, u64>> {
        self.0.by_low_bits(num)
    }

    pub(crate) fn add(&self, num: u64) {
        *self.shard(num).lock().entry(num).or_default() += 1;
    }

    /// Drops references. Returns whether they were the last.
    pub(crate) fn remove(&self, num: u64, uses: u64) -> bool {
        let mut shard = self.shard(num).lock();
        let Some(count) = shard.get_mut(&num) else { return false };
        *count = count.saturating_sub(uses);
        let last = *count == 0;
        if last {
            shard.remove(&num);
        }
        last
    }

    pub(crate) fn is_held(&self, num: u64) -> bool {
        self.shard(num).lock().contains_key(&num)
    }

    /// Returns all referenced inodes.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.0.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>()).collect()
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(|shard| shard.lock().len() as u64).sum()
    }
}
