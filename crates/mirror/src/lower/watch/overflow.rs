//! Overflow of the event queue (`FAN_Q_OVERFLOW`, `IN_Q_OVERFLOW`) and events that cannot be parsed: the daemon no longer knows
//! what changed, so everything that the client caches is invalidated.

use std::sync::atomic::Ordering;

use super::{Change, Watch};

impl Watch {
    /// Handles lost events: anything may have changed.
    pub(super) fn events_lost(&self, on_change: &mut impl FnMut(Change)) {
        self.overflows.fetch_add(1, Ordering::Relaxed);
        self.stamp_all();
        on_change(Change::Everything);
    }

    /// Number of queue overflows.
    pub(crate) fn overflows(&self) -> u64 {
        self.overflows.load(Ordering::Relaxed)
    }
}
