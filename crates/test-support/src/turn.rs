//! Locks on resources that the machine has once: readers-writer locks between processes of all test binaries and test runs of a
//! user.
//!
//! A lock is a pair of files locked with `flock(2)`, which alone lets a writer starve while readers follow each other. So
//! everybody locks the first file, the gate, before the second one, and a writer keeps the gate while it waits: later readers
//! queue up.

use std::fs::{File, TryLockError};
use std::path::Path;

/// A held lock, released on drop.
#[derive(Debug)]
#[must_use]
pub struct Turn(#[expect(dead_code, reason = "closing it ends the turn")] File);

/// Takes the lock shared.
///
/// # Panics
/// If `/tmp` is not writable.
pub fn share(resource: &str) -> Turn {
    let gate = file(resource, "gate");
    gate.lock_shared().unwrap_or_else(|error| panic!("the gate to {resource}: {error}"));
    let lock = file(resource, "lock");
    lock.lock_shared().unwrap_or_else(|error| panic!("a lock on {resource}: {error}"));
    Turn(lock)
}

/// Takes the lock exclusively.
///
/// # Panics
/// If `/tmp` is not writable.
pub fn lock_exclusive(resource: &str) -> Turn {
    let gate = file(resource, "gate");
    gate.lock().unwrap_or_else(|error| panic!("the gate to {resource}: {error}"));
    let lock = file(resource, "lock");
    lock.lock().unwrap_or_else(|error| panic!("a lock on {resource}: {error}"));
    Turn(lock)
}

/// Takes the lock exclusively; `None` if it is held.
///
/// # Panics
/// If `/tmp` is not writable.
pub fn try_lock_exclusive(resource: &str) -> Option<Turn> {
    let lock = file(resource, "lock");
    match lock.try_lock() {
        Ok(()) => Some(Turn(lock)),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Error(error)) => panic!("a lock on {resource}: {error}"),
    }
}

/// Opens a lock file. All tests of a user share it, wherever their temporary files are. It is never removed, because a lock on
/// a removed file excludes no process.
fn file(what: &str, kind: &str) -> File {
    let user = rustix::process::geteuid().as_raw();
    let path = Path::new("/tmp").join(format!("shunt-test-{what}-{user}.{kind}"));
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    options.open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
