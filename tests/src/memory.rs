//! Turns for the kernel's caches. `/proc/sys/vm/drop_caches` strikes the whole machine, so who counts what the kernel asks
//! for has to keep out those who write there, whichever program they are tests of.

use crate::turn::{self, Turn};

const CACHES: &str = "caches";

/// A turn at dropping them.
#[derive(Debug)]
#[must_use]
pub struct Drops(#[expect(dead_code, reason = "dropping it ends the turn")] Turn);

/// Runs a test that counts on the caches, beside others that do. Nobody who takes turns drops them; if somebody else did,
/// a failure tells nothing, and the test is run again.
pub fn keeping(test: impl Fn()) {
    let _turn = turn::share(CACHES);
    for _ in 0..5 {
        let before = drops();
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(&test)) {
            Ok(()) => return,
            Err(failure) if drops() == before => std::panic::resume_unwind(failure),
            Err(_) => eprintln!("somebody dropped the caches meanwhile: once more"),
        }
    }
    panic!("somebody drops the caches all the time");
}

/// How often anybody had the kernel drop its caches.
fn drops() -> Vec<String> {
    let figures = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    figures.lines().filter(|line| line.starts_with("drop_")).map(str::to_owned).collect()
}

/// Nobody counts on the caches, and nobody else drops them.
pub fn drop_at_will() -> Drops {
    Drops(turn::alone(CACHES))
}

impl Drops {
    /// Makes the kernel forget the inodes and names that nobody uses.
    ///
    /// # Panics
    /// When the caller is not root.
    pub fn forget_names(&self) {
        std::fs::write("/proc/sys/vm/drop_caches", "2").expect("drop_caches: needs root");
    }
}
