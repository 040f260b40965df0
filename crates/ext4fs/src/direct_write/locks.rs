//! One lock for each file whose map somebody changes.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::{ArcMutexGuard, Mutex, RawMutex};

/// The locks in use, by inode.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<HashMap<u32, Arc<Mutex<()>>>>);

/// Nobody else opens, cuts, allocates ahead, settles or lets go of the file while this is held.
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
        // The table's own is the last one: who wants it now waits for the table.
        if locks.get(&self.number).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.number);
        }
    }
}
