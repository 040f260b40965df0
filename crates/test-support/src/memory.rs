//! Lock on the kernel's caches. `/proc/sys/vm/drop_caches` affects the whole machine, so tests that count requests have to
//! exclude tests that write to it, in whichever test binary.

use crate::turn::{self, Turn};

const PAGE_CACHE_LOCK: &str = "caches";

/// Exclusive lock for dropping caches.
#[derive(Debug)]
#[must_use]
pub struct Drops(#[expect(dead_code, reason = "dropping it ends the turn")] Turn);

/// Runs a test that relies on the caches, concurrently with others that do. Holders of the lock do not drop caches; if another
/// program did, a failure proves nothing, and the test runs again.
pub fn keeping(test: impl Fn()) {
    let _turn = turn::share(PAGE_CACHE_LOCK);
    for _ in 0..5 {
        let before = drops();
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(&test)) {
            Ok(()) => return,
            Err(failure) if drops() == before => std::panic::resume_unwind(failure),
            Err(_) => eprintln!("another process dropped the page cache meanwhile: running the test again"),
        }
    }
    panic!("cannot measure memory: another process keeps dropping the page cache; run this test alone");
}

/// Returns the kernel's counters of dropped caches.
fn drops() -> Vec<String> {
    let figures = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    figures.lines().filter(|line| line.starts_with("drop_")).map(str::to_owned).collect()
}

/// Takes the lock exclusively: no other test relies on the caches or drops them.
pub fn drop_at_will() -> Drops {
    Drops(turn::lock_exclusive(PAGE_CACHE_LOCK))
}

impl Drops {
    /// Makes the kernel evict unused inodes and dentries.
    ///
    /// # Panics
    /// If the caller is not root.
    pub fn forget_names(&self) {
        std::fs::write("/proc/sys/vm/drop_caches", "2").expect("drop_caches: needs root");
    }
}
