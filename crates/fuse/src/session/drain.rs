//! Stopping to read, so that another server can go on.
//!
//! A thread that waits for a request cannot be told to stop: no message of the kernel's can be had without a file to ask
//! for, and a signal that comes a moment late interrupts a handler. It need not be told. A request that it gets from here
//! on is left alone, and comes again to the next server as those of a dead one do; so such a thread can be ended with
//! the process at any time.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::Handle;
use super::readers::Readers;

/// How often is looked.
const LOOK: Duration = Duration::from_micros(200);

impl Readers {
    /// Whether no request is to be begun any more.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// A handler may run on one of the threads.
    fn is_busy(&self) -> bool {
        // In this order: a thread that gets idle was counted before.
        let threads = self.threads();
        threads > self.waiting()
    }
}

impl Handle {
    /// Begins no request any more, and waits until those that were begun are answered, for `patience` at most. The others
    /// are for another server; this process is to end.
    ///
    /// Tells whether all are answered. What is not is asked again of the next server, as after a crash. Requests over
    /// io_uring go on.
    pub fn drain(&self, patience: Duration) -> bool {
        let (readers, waiting) = (&self.shared.readers, &self.shared.waiting);
        let end = Instant::now() + patience;
        readers.draining.store(true, Ordering::SeqCst);
        while readers.is_busy() || waiting.len() > 0 {
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }
}
