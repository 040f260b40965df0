//! Stopping to read, so that another server can go on.
//!
//! A thread that waits for a request is woken by one: the kernel answers FUSE_NOTIFY_RETRIEVE, here of no bytes, with a
//! message to whoever reads next. No signal has to find a thread that is in the right system call.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use shunt_fuse_abi as abi;

use super::Handle;
use super::readers::Readers;
use crate::api::NodeId;

/// How often is looked.
const LOOK: Duration = Duration::from_micros(200);

/// The id of the message that wakes a thread: none that the kernel gives to a request (those are even), nor to a resent
/// one (those have the highest bit).
const WAKE: u64 = (1 << 61) + 1;

impl Readers {
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }
}

impl Handle {
    /// Stops reading requests, for good, and waits until those that were read are answered, for `patience` at most. What
    /// comes later waits in the kernel for another server; this process is to end.
    ///
    /// Tells whether all are answered. What is not is asked again of the next server, as after a crash: nothing is lost
    /// without patience. Requests over io_uring go on.
    pub fn drain(&self, patience: Duration) -> bool {
        let (shared, readers) = (&self.shared, &self.shared.readers);
        let end = Instant::now() + patience;
        readers.draining.store(true, Ordering::SeqCst);
        while readers.threads() > 0 {
            for _ in 0..readers.waiting() {
                // It fails for want of memory, which passes, or because the mount is gone, and the threads with it.
                if shared.device.notify(&abi::notify::retrieve(WAKE, NodeId::ROOT.0, 0, 0)).is_err() {
                    break;
                }
            }
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(LOOK);
        }
        // Handlers that were left waiting go on by themselves.
        while shared.waiting.len() > 0 {
            if Instant::now() >= end {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }
}
