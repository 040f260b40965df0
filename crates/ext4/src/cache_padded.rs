//! Padding and sharding that avoid false sharing of cache lines between processors.

use std::ops::Deref;

/// A value on cache lines of its own (two: processors prefetch pairs), so that writes to its neighbours do not invalidate it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> Deref for CachePadded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Number of independently locked shards of heavily used tables.
pub(crate) const SHARDS: usize = 64;

/// Returns the shard of a number. Neighbouring numbers, and numbers a power of two apart, such as the same position in two
/// groups, map to different shards (Knuth's multiplicative hashing).
pub(crate) fn shard_of(number: u64) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SHARDS.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::{SHARDS, shard_of};

    #[test]
    fn shards_are_used_alike() {
        for step in [1, 2, 64, 512, 8192, 32768] {
            let mut used = [0; SHARDS];
            (0..10 * SHARDS as u64).for_each(|n| used[shard_of(1000 + n * step)] += 1);
            assert!(used.iter().all(|used| (5..=16).contains(used)), "{step}: {used:?}");
        }
    }
}
