//! Sharding of tables that many threads use: each shard has a lock of its own, so that threads that use different keys
//! rarely wait for each other.
//!
//! A [`Sharded`] table is an array of shards and the rule by which a key selects one. A shard is whatever holds its part of the
//! table, usually a mutex with a map. It is in a [`CachePadded`] where the locks of neighbouring shards are taken so often that
//! they must not share a cache line. [`ReferenceCounts`] are such a part of a table.

#![forbid(unsafe_code)]

mod cache_padded;
mod reference_counts;

pub use cache_padded::CachePadded;
pub use reference_counts::{Number, ReferenceCounts};

/// `N` shards, a power of two. A table must select by the same rule for all of its keys.
#[derive(Debug)]
pub struct Sharded<T, const N: usize = 16>([T; N]);

impl<T, const N: usize> Sharded<T, N> {
    const BITS: u32 = {
        assert!(N > 1 && N.is_power_of_two());
        N.ilog2()
    };

    /// Makes each shard from its index.
    pub fn from_fn(shard: impl FnMut(usize) -> T) -> Self {
        Self(std::array::from_fn(shard))
    }

    /// Returns the shard that the low bits of a number select: for numbers that are assigned consecutively, and for the index of
    /// a shard.
    #[inline]
    pub fn by_low_bits(&self, number: u64) -> &T {
        &self.0[(number & ((1 << Self::BITS) - 1)) as usize]
    }

    /// Returns the shard that the hash of a number selects. Neighbouring numbers, and numbers a power of two apart, select
    /// different shards.
    #[inline]
    pub fn by_hash(&self, number: u64) -> &T {
        // Multiplication by the golden ratio, as a fraction of 2^64, makes the top bits depend on all bits.
        &self.0[(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - Self::BITS)) as usize]
    }

    /// Iterates over all shards.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}

impl<T: Default, const N: usize> Default for Sharded<T, N> {
    fn default() -> Self {
        Self::from_fn(|_| T::default())
    }
}

/// The examples of the README, compiled with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn hashes_use_all_shards_alike() {
        for step in [1, 2, 64, 512, 8192, 32768] {
            let used = Sharded::<Cell<u32>, 64>::default();
            (0..640).for_each(|n| used.by_hash(1000 + n * step).update(|count| count + 1));
            assert!(used.iter().all(|used| (5..=16).contains(&used.get())), "{step}: {used:?}");
        }
    }

    #[test]
    fn low_bits_select_in_turn() {
        let shards = Sharded::<_, 8>::from_fn(|index| index as u64);
        assert!((0..100).all(|number| *shards.by_low_bits(number) == number % 8));
        assert_eq!(*shards.by_low_bits(u64::MAX), 7);
    }
}
