//! Draining: stops processing requests, so that another server can take over.
//!
//! A thread that waits for a request cannot be stopped: there is no way to make the kernel send it a message without a file, and
//! a signal that arrives a moment late interrupts a handler. It need not be stopped. A request that it receives from now on is
//! ignored, and the kernel resends it to the next server like the requests of a dead one; the process can therefore exit with
//! such threads at any time.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::Handle;
use super::readers::Readers;

/// Polling interval while draining.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

impl Readers {
    /// Reports whether no request is to be started any more.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Reports whether a handler may be running on one of the threads.
    fn is_busy(&self) -> bool {
        // Order matters: a thread that becomes idle was counted before.
        let threads = self.threads();
        threads > self.waiting()
    }
}

impl Handle {
    /// Starts no further requests, and waits until the started ones are answered, for `patience` at most. The others are left to
    /// another server; this process is expected to exit.
    ///
    /// Returns whether all are answered. The kernel resends the others to the next server, as after a crash. Requests over
    /// io_uring are still served.
    pub fn drain(&self, patience: Duration) -> bool {
        let (readers, waiting) = (&self.shared.readers, &self.shared.waiting);
        let end = Instant::now() + patience;
        readers.draining.store(true, Ordering::SeqCst);
        while readers.is_busy() || waiting.len() > 0 {
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(POLL_INTERVAL);
        }
        true
    }
}
