//! Rings for threads to come.

use std::io;

use parking_lot::Mutex;

use crate::transport::uring::Ring;

/// Rings that no thread has yet.
#[derive(Debug, Default)]
pub(super) struct Stock {
    /// Where all were made ahead those that are left. Otherwise each is made when it is wanted.
    ahead: Option<Mutex<Vec<Ring>>>,
}

impl Stock {
    /// Of which none is made later: the call may be forbidden from then on.
    pub(super) fn ahead(rings: Vec<Ring>) -> Self {
        Self { ahead: Some(Mutex::new(rings)) }
    }

    /// A ring for a new thread.
    ///
    /// # Errors
    /// It cannot be made, or there is none left.
    pub(super) fn take(&self) -> io::Result<Ring> {
        match &self.ahead {
            Some(rings) => rings.lock().pop().ok_or_else(|| io::Error::other("all rings are in use")),
            None => Ring::new(),
        }
    }

    /// Gives one back that nobody started.
    pub(super) fn put_back(&self, ring: Ring) {
        if let Some(rings) = &self.ahead {
            rings.lock().push(ring);
        }
    }

    /// The session is over.
    pub(super) fn clear(&self) {
        if let Some(rings) = &self.ahead {
            rings.lock().clear();
        }
    }
}
