//! The harness of the tests on real mounts: a scripted in-memory file system, a fixture that mounts it and always unmounts it
//! again, and a watchdog that turns a hang into a failure.
//!
//! Without root or `/dev/fuse` a test prints `SKIP name: reason`; with `CI=true` that is a failure.

pub mod child;
pub mod fixture;
pub mod fs;
pub mod locks;
pub mod script;
pub mod sys;
pub mod tree;
pub mod watchdog;

pub use fixture::{Fixture, Plan, over_rings, processors, run, run_with, skip};
pub use fs::TestFs;
pub use script::{Behaviour, Call, Gate, Log};
pub use tree::{Content, OpenAs};

use std::time::{Duration, Instant};

use shunt_test_support::cmd::within;
use shunt_test_support::pace;

/// Waits until a condition holds.
///
/// # Panics
/// The condition does not hold after ten seconds, scaled by the speed of the machine.
#[track_caller]
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    assert!(within(Duration::from_secs(10), condition), "never happened: {what}");
}

/// Returns how many times slower this machine is than usual: the lab emulates its CPUs.
pub fn slowness() -> u32 {
    if std::env::var_os("SHUNT_LAB").is_some() { 20 } else { 1 }
}

/// Waits until all queued notifications are sent.
///
/// # Panics
/// No notification is sent for ten seconds, scaled by the speed of the machine.
#[track_caller]
pub fn drained(fixture: &Fixture) {
    let (mut left, mut since) = (usize::MAX, Instant::now());
    loop {
        let now = fixture.caches().queued();
        match () {
            () if now == 0 => return,
            () if now < left => (left, since) = (now, Instant::now()),
            () => assert!(since.elapsed() < pace::seconds(10), "{left} notifications are stuck"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Measures the duration of a call.
pub fn timed<R>(call: impl FnOnce() -> R) -> (Duration, R) {
    let start = Instant::now();
    let result = call();
    (start.elapsed(), result)
}

/// Generates bytes that differ everywhere and between seeds.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend(rng.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A xorshift generator: the same numbers in every run.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Compares bytes; a difference is reported by its position only.
#[track_caller]
pub fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{what}: first difference");
}
