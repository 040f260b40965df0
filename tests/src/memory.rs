//! Turns for the kernel's caches. `/proc/sys/vm/drop_caches` strikes the whole machine, so who counts what the kernel asks
//! for has to keep out those who write there, whichever program they are tests of.

use std::fs::File;

/// A turn, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Turn(#[expect(dead_code, reason = "closing it ends the turn")] File);

/// Others may count on the caches as well; nobody drops them.
pub fn keep() -> Turn {
    let lock = lock();
    lock.lock_shared().expect("a lock on the caches");
    Turn(lock)
}

/// Nobody counts on the caches, and nobody else drops them.
pub fn drop_at_will() -> Turn {
    let lock = lock();
    lock.lock().expect("a lock on the caches");
    Turn(lock)
}

/// One file for all tests of one user: it stays, because a lock on a file that was removed keeps nobody out.
fn lock() -> File {
    let user = rustix::process::geteuid().as_raw();
    let path = std::env::temp_dir().join(format!("shunt-test-caches-{user}.lock"));
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    options.open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Turn {
    /// Makes the kernel forget the inodes and names that nobody uses.
    ///
    /// # Panics
    /// When the caller is not root.
    pub fn forget_names(&self) {
        std::fs::write("/proc/sys/vm/drop_caches", "2").expect("drop_caches: needs root");
    }
}
