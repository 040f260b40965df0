//! Turns for what the whole machine has once. Whichever program a test belongs to, and whoever else runs tests here: it
//! shares, or it is alone.

use std::fs::File;

/// A turn, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Turn(#[expect(dead_code, reason = "closing it ends the turn")] File);

/// Others may share it; nobody is alone with it.
///
/// # Panics
/// Without a place for temporary files.
pub fn share(what: &str) -> Turn {
    let lock = lock(what);
    lock.lock_shared().unwrap_or_else(|error| panic!("a lock on {what}: {error}"));
    Turn(lock)
}

/// Nobody else has it.
///
/// # Panics
/// Without a place for temporary files.
pub fn alone(what: &str) -> Turn {
    let lock = lock(what);
    lock.lock().unwrap_or_else(|error| panic!("a lock on {what}: {error}"));
    Turn(lock)
}

/// One file for all tests of one user: it stays, because a lock on a file that was removed keeps nobody out.
fn lock(what: &str) -> File {
    let user = rustix::process::geteuid().as_raw();
    let path = std::env::temp_dir().join(format!("shunt-test-{what}-{user}.lock"));
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    options.open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
