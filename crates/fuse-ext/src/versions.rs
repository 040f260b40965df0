//! Versions: what keeps an old answer from being believed after a change.

use std::sync::atomic::Ordering;

use crate::Memory;

/// The version of a thing at a moment. Taken **before** the answer is sought, and stored with it: should anything
/// change meanwhile, what is stored is stale the moment it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(pub u64);

/// Counters shared with the program: one for everything, and the others by hash. Two things that share a counter
/// forget together, which costs a request and is never wrong.
#[derive(Debug)]
pub struct Versions(Memory);

/// Spreads a number over 64 bits, as programs do.
pub fn mix(mut x: u64) -> u64 {
    const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
    x ^= x >> 32;
    x = x.wrapping_mul(FACTOR);
    x ^= x >> 32;
    x = x.wrapping_mul(FACTOR);
    x ^ x >> 32
}

impl Versions {
    /// # Panics
    /// The number of words must be a power of two, and at least 2.
    pub fn new(memory: Memory) -> Self {
        let count = memory.words().len();
        assert!(count >= 2 && count.is_power_of_two(), "{count} versions");
        Self(memory)
    }

    fn index(&self, domain: u64, hash: u64) -> usize {
        let index = mix(hash.wrapping_add(domain)) as usize & (self.0.words().len() - 1);
        index.max(1)
    }

    /// The version now, of what `hash` names in `domain`.
    pub fn now(&self, domain: u64, hash: u64) -> Version {
        let words = self.0.words();
        let own = words[self.index(domain, hash)].load(Ordering::SeqCst);
        Version(own.wrapping_add(words[0].load(Ordering::SeqCst)))
    }

    /// Makes stale what is stored of it.
    pub fn changed(&self, domain: u64, hash: u64) {
        self.0.words()[self.index(domain, hash)].fetch_add(1, Ordering::SeqCst);
    }

    /// Makes everything stale.
    pub fn all_changed(&self) {
        self.0.words()[0].fetch_add(1, Ordering::SeqCst);
    }
}
