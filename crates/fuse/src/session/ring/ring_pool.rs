//! A pool of rings for future threads.

use std::io;

use parking_lot::Mutex;

use crate::transport::uring::Ring;

/// Rings that no thread uses yet.
#[derive(Debug)]
pub(super) enum RingPool {
    /// The remaining rings: all were made ahead.
    Ahead(Mutex<Vec<Ring>>),
    /// Each ring is made on demand.
    OnDemand {
        /// The rings can receive zero-copy requests.
        zero_copy: bool,
    },
}

impl Default for RingPool {
    fn default() -> Self {
        Self::OnDemand { zero_copy: false }
    }
}

impl RingPool {
    /// Makes a pool that makes no further rings: the system call may be forbidden from then on.
    pub(super) fn ahead(rings: Vec<Ring>) -> Self {
        Self::Ahead(Mutex::new(rings))
    }

    /// Returns a ring for a new thread.
    ///
    /// # Errors
    /// It cannot be made, or none is left.
    pub(super) fn take(&self) -> io::Result<Ring> {
        match self {
            Self::Ahead(rings) => rings.lock().pop().ok_or_else(|| io::Error::other("all rings are in use")),
            Self::OnDemand { zero_copy } => Ring::new(*zero_copy),
        }
    }

    /// Returns a ring that was not started to the pool.
    pub(super) fn put_back(&self, ring: Ring) {
        if let Self::Ahead(rings) = self {
            rings.lock().push(ring);
        }
    }

    /// Drops the rings at the end of the session.
    pub(super) fn clear(&self) {
        if let Self::Ahead(rings) = self {
            let unused = std::mem::take(&mut *rings.lock());
            drop(unused);
        }
    }
}
