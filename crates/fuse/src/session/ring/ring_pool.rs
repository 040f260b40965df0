//! A pool of rings for future threads.

use std::io;

use parking_lot::Mutex;

use crate::transport::uring::Ring;

/// Rings that no thread uses yet.
#[derive(Debug, Default)]
pub(super) struct RingPool {
    /// The remaining rings, where all were made ahead. Otherwise each ring is made on demand.
    ahead: Option<Mutex<Vec<Ring>>>,
    /// Rings made on demand can receive zero-copy requests.
    zero_copy: bool,
}

impl RingPool {
    /// Makes a pool that makes each ring on demand.
    pub(super) fn on_demand(zero_copy: bool) -> Self {
        Self { ahead: None, zero_copy }
    }

    /// Makes a pool that makes no further rings: the system call may be forbidden from then on.
    pub(super) fn ahead(rings: Vec<Ring>) -> Self {
        Self { ahead: Some(Mutex::new(rings)), zero_copy: false }
    }

    /// Returns a ring for a new thread.
    ///
    /// # Errors
    /// It cannot be made, or none is left.
    pub(super) fn take(&self) -> io::Result<Ring> {
        match &self.ahead {
            Some(rings) => rings.lock().pop().ok_or_else(|| io::Error::other("all rings are in use")),
            None => Ring::new(self.zero_copy),
        }
    }

    /// Returns a ring that was not started to the pool.
    pub(super) fn put_back(&self, ring: Ring) {
        if let Some(rings) = &self.ahead {
            rings.lock().push(ring);
        }
    }

    /// Drops the rings at the end of the session.
    pub(super) fn clear(&self) {
        if let Some(rings) = &self.ahead {
            let unused = std::mem::take(&mut *rings.lock());
            drop(unused);
        }
    }
}
