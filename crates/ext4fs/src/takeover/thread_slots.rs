//! A slot for each thread, in which it records the operation that it executes: a thread replies to one before it begins the next.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use hashbrown::HashSet;
use parking_lot::Mutex;

#[derive(Debug)]
struct Pool {
    free: Mutex<Vec<usize>>,
}

/// The slots of a file system.
#[derive(Debug)]
pub(super) struct ThreadSlots(Arc<Pool>);

/// A slot, until its thread exits.
struct Lease {
    pool: Weak<Pool>,
    slot: usize,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.free.lock().push(self.slot);
        }
    }
}

thread_local! {
    /// The slot that this thread used last. A thread serves one file system.
    static LEASE: RefCell<Option<Lease>> = const { RefCell::new(None) };
}

impl ThreadSlots {
    /// Makes `count` slots, of which some are taken for good.
    pub(super) fn new(count: usize, taken: impl Iterator<Item = usize>) -> Self {
        let taken: HashSet<usize> = taken.collect();
        let free = (0..count).rev().filter(|slot| !taken.contains(slot)).collect();
        Self(Arc::new(Pool { free: Mutex::new(free) }))
    }

    /// Returns the slot of the calling thread; `None` if all are taken.
    pub(super) fn of_thread(&self) -> Option<usize> {
        LEASE.with_borrow_mut(|lease| {
            if let Some(lease) = lease.as_ref().filter(|lease| lease.pool.as_ptr() == Arc::as_ptr(&self.0)) {
                return Some(lease.slot);
            }
            let slot = self.0.free.lock().pop()?;
            *lease = Some(Lease { pool: Arc::downgrade(&self.0), slot });
            Some(slot)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_a_slot_of_its_own_while_it_runs() {
        let slots = ThreadSlots::new(3, [1].into_iter());
        let first = slots.of_thread();
        assert_eq!((first, slots.of_thread()), (Some(0), Some(0)));
        for _ in 0..3 {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| slots.of_thread());
                assert_eq!(other.join().unwrap(), Some(2));
            });
        }
        let other = ThreadSlots::new(1, [].into_iter());
        assert_eq!(other.of_thread(), Some(0));
        assert_eq!(slots.of_thread(), Some(0), "the slot was not given back");
    }
}
