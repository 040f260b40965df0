//! INTERRUPT: a signal interrupted the caller of a request. It is delivered to the task of a waiting request; one that arrives
//! before the handler waits is kept in a bounded list until the handler does.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// The interrupt flag of one request.
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
        let wakers = std::mem::take(&mut *self.wakers.lock());
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn wait(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        poll_fn(move |context| {
            let mut wakers = self.wakers.lock();
            if self.is_set() {
                return Poll::Ready(());
            }
            // A future that one task polls repeatedly registers one waker.
            if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
    }
}

/// Interrupts of requests that are not waiting tasks: their handlers either have not waited yet or are done.
///
/// A reply of EAGAIN, which makes the kernel send the interrupt again, does not help: the kernel looks for the request among
/// those of the descriptor to which that reply is written, and another thread reads through another one.
#[derive(Debug, Default)]
pub(crate) struct EarlyInterrupts {
    /// The most recent ids; those of requests that were done already are dropped at the other end.
    ids: Mutex<VecDeque<u64>>,
    any: AtomicBool,
}

/// More requests than threads can have between the two steps.
const MAX_EARLY_INTERRUPTS: usize = 1024;

impl EarlyInterrupts {
    pub(crate) fn insert(&self, unique: u64) {
        let mut ids = self.ids.lock();
        if ids.len() == MAX_EARLY_INTERRUPTS {
            ids.pop_front();
        }
        ids.push_back(unique);
        self.any.store(true, Ordering::SeqCst);
    }

    pub(crate) fn contains(&self, unique: u64) -> bool {
        self.any.load(Ordering::SeqCst) && self.ids.lock().contains(&unique)
    }

    /// Removes an id; returns whether it was present.
    pub(crate) fn remove(&self, unique: u64) -> bool {
        if !self.any.load(Ordering::SeqCst) {
            return false;
        }
        let mut ids = self.ids.lock();
        let index = ids.iter().position(|&id| id == unique);
        let found = index.and_then(|index| ids.remove(index)).is_some();
        self.any.store(!ids.is_empty(), Ordering::SeqCst);
        found
    }
}
