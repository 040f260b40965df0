//! Per-file locks for changes of the block map. A lock exists only while a thread holds or awaits it.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::{ArcMutexGuard, Mutex, RawMutex};

/// Locks in use, by inode.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<HashMap<u32, Arc<Mutex<()>>>>);

/// Guard of a file's lock: excludes opening, truncating, preallocating, settling and unmapping it.
pub(super) struct Locked<'a> {
    locks: &'a Locks,
    number: u32,
    guard: Option<ArcMutexGuard<RawMutex, ()>>,
}

impl Locks {
    pub(super) fn lock(&self, number: u32) -> Locked<'_> {
        let lock = self.0.lock().entry(number).or_default().clone();
        Locked { locks: self, number, guard: Some(lock.lock_arc()) }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut locks = self.locks.0.lock();
        // The table's reference is the last one: a thread that wants the lock now waits for the table.
        if locks.get(&self.number).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.number);
        }
    }
}
