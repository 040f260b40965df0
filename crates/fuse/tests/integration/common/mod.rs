//! What the tests on real mounts stand on: a file system in memory that does what a script says, a stage that mounts
//! it and always takes it away again, and a watchdog that makes a hang a failure.
//!
//! Without root or `/dev/fuse` a test prints `SKIP name: reason`; with `CI=true` that is a failure.

pub mod child;
pub mod fs;
pub mod locks;
pub mod script;
pub mod stage;
pub mod sys;
pub mod tree;
pub mod watchdog;

pub use fs::TestFs;
pub use script::{Behaviour, Call, Gate, Log};
pub use stage::{Plan, Stage, over_rings, processors, run, run_with, skip};
pub use tree::{Content, OpenAs};

use std::time::{Duration, Instant};

use shunt_tests::cmd::within;
use shunt_tests::pace;

/// Waits until the condition holds.
///
/// # Panics
/// After ten seconds in the pace of the machine.
#[track_caller]
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    assert!(within(Duration::from_secs(10), condition), "never happened: {what}");
}

/// How much slower than a machine of its own this one is: the lab emulates its processors.
pub fn slowness() -> u32 {
    if std::env::var_os("SHUNT_LAB").is_some() { 20 } else { 1 }
}

/// Waits until every notification is sent, however many there are.
///
/// # Panics
/// After ten seconds, in the pace of the machine, in which none was.
#[track_caller]
pub fn drained(stage: &Stage) {
    let (mut left, mut since) = (usize::MAX, Instant::now());
    loop {
        let now = stage.caches().queued();
        match () {
            () if now == 0 => return,
            () if now < left => (left, since) = (now, Instant::now()),
            () => assert!(since.elapsed() < pace::seconds(10), "{left} notifications are stuck"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How long a call takes.
pub fn timed<R>(call: impl FnOnce() -> R) -> (Duration, R) {
    let start = Instant::now();
    let result = call();
    (start.elapsed(), result)
}

/// Bytes that differ everywhere and from seed to seed.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend(rng.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Xorshift: the same numbers every run.
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

/// Compares bytes; a difference is told by its place, not by all of them.
#[track_caller]
pub fn assert_same(found: &[u8], wanted: &[u8], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}: length");
    let differs = found.iter().zip(wanted).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{what}: first difference");
}
