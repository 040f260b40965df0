//! INTERRUPT: the caller of a request gave up.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// Whether the caller of one request gave up.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    set: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Interrupt {
    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::Release);
        for waker in std::mem::take(&mut *self.wakers.lock()) {
            waker.wake();
        }
    }

    pub(crate) fn wait(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        poll_fn(move |context| {
            let mut wakers = self.wakers.lock();
            if self.is_set() {
                return Poll::Ready(());
            }
            // A future polled again and again by one task leaves one waker, not many.
            if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
    }
}

/// Interrupts of requests that nobody knew to wait: their handlers have not shown yet whether they wait, or are done.
///
/// Answering EAGAIN, so that the kernel asks again, does not help: the kernel looks for the request among those of the
/// descriptor to which that answer is written, and another thread reads through another one.
#[derive(Debug, Default)]
pub(crate) struct EarlyInterrupts {
    /// The newest; ids of requests that were done already drop out at the other end.
    ids: Mutex<VecDeque<u64>>,
    any: AtomicBool,
}

/// More requests than can be between two steps of their threads.
const EARLY: usize = 1024;

impl EarlyInterrupts {
    pub(crate) fn insert(&self, unique: u64) {
        let mut ids = self.ids.lock();
        if ids.len() == EARLY {
            ids.pop_front();
        }
        ids.push_back(unique);
        self.any.store(true, Ordering::SeqCst);
    }

    pub(crate) fn contains(&self, unique: u64) -> bool {
        self.any.load(Ordering::SeqCst) && self.ids.lock().contains(&unique)
    }

    /// Takes an id out; tells whether it was there.
    pub(crate) fn remove(&self, unique: u64) -> bool {
        if !self.any.load(Ordering::SeqCst) {
            return false;
        }
        let mut ids = self.ids.lock();
        let place = ids.iter().position(|&id| id == unique);
        let found = place.and_then(|place| ids.remove(place)).is_some();
        self.any.store(!ids.is_empty(), Ordering::SeqCst);
        found
    }
}
