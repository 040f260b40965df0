//! Memory that processors do not take from each other for nothing.

use std::ops::Deref;

/// A value with cache lines of its own (two of them: processors fetch pairs): whoever changes its neighbours leaves it
/// alone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> Deref for CachePadded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Parts with a lock each, into which much used tables are cut.
pub(crate) const SHARDS: usize = 64;

/// Which of the shards has a number. Those that are used together lie far apart, be they neighbours or of one place in two
/// groups, whose distance is a power of two (Knuth's multiplicative hashing).
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
