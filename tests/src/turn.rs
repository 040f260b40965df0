//! Turns for what the whole machine has once: a readers-writer lock between processes, whichever program a test belongs to and
//! whoever else runs tests here.
//!
//! A lock is a pair of files, locked by `flock(2)`, which lets a writer starve while readers come and go. So everybody locks
//! the first file, the gate, before the second one, and a writer keeps it while it waits: readers that come later queue up.

use std::fs::{File, TryLockError};
use std::path::Path;

/// A turn, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Turn(#[expect(dead_code, reason = "closing it ends the turn")] File);

/// Others may share it; nobody is alone with it.
///
/// # Panics
/// When `/tmp` cannot be written to.
pub fn share(what: &str) -> Turn {
    let gate = file(what, "gate");
    gate.lock_shared().unwrap_or_else(|error| panic!("the gate to {what}: {error}"));
    let lock = file(what, "lock");
    lock.lock_shared().unwrap_or_else(|error| panic!("a lock on {what}: {error}"));
    Turn(lock)
}

/// Nobody else has it.
///
/// # Panics
/// When `/tmp` cannot be written to.
pub fn alone(what: &str) -> Turn {
    let gate = file(what, "gate");
    gate.lock().unwrap_or_else(|error| panic!("the gate to {what}: {error}"));
    let lock = file(what, "lock");
    lock.lock().unwrap_or_else(|error| panic!("a lock on {what}: {error}"));
    Turn(lock)
}

/// Nobody else has it; `None` where somebody has.
///
/// # Panics
/// When `/tmp` cannot be written to.
pub fn try_alone(what: &str) -> Option<Turn> {
    let lock = file(what, "lock");
    match lock.try_lock() {
        Ok(()) => Some(Turn(lock)),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Error(error)) => panic!("a lock on {what}: {error}"),
    }
}

/// One file for all tests of one user, wherever they have their temporary files. It stays, because a lock on a file that was
/// removed keeps nobody out.
fn file(what: &str, kind: &str) -> File {
    let user = rustix::process::geteuid().as_raw();
    let path = Path::new("/tmp").join(format!("shunt-test-{what}-{user}.{kind}"));
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    options.open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
