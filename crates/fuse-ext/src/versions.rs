//! Version counters, which invalidate stored results: an entry is valid only while its version is current. The version of an
//! object is the sum of its own counter and a global one, so that one increment invalidates everything.

use std::sync::atomic::Ordering;

use crate::Memory;

/// The version of an object at some moment. Read it **before** the result is queried, and store it with the result: if the object
/// changes meanwhile, the entry is stale as soon as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(pub u64);

/// Counters shared with the program: one for everything, and the others by hash. Objects that share a counter are invalidated
/// together, which costs a request but is never incorrect.
#[derive(Debug)]
pub struct Versions(Memory);

/// Mixes the bits of a number, as programs do.
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

    /// Returns the current version of the object with this hash in `domain`.
    pub fn now(&self, domain: u64, hash: u64) -> Version {
        let words = self.0.words();
        let own = words[self.index(domain, hash)].load(Ordering::SeqCst);
        Version(own.wrapping_add(words[0].load(Ordering::SeqCst)))
    }

    /// Invalidates the entries of an object.
    pub fn changed(&self, domain: u64, hash: u64) {
        self.0.words()[self.index(domain, hash)].fetch_add(1, Ordering::SeqCst);
    }

    /// Invalidates all entries.
    pub fn all_changed(&self) {
        self.0.words()[0].fetch_add(1, Ordering::SeqCst);
    }
}
