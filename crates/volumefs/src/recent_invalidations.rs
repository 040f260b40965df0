//! Files whose invalidation was sent to the kernel a moment ago.
//!
//! The kernel ignores a length in a reply that crosses an invalidation. Opens check for that, so the times are kept for files
//! that are not open, too: in a table of constant size.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time after which the kernel has processed an invalidation, and has answered the reads for which it requested the length.
pub(crate) const INVALIDATION_WINDOW: Duration = Duration::from_millis(50);

/// Number of slots. Files that share a slot share their invalidations.
const SLOTS: usize = 4096;

pub(crate) struct RecentInvalidations {
    begun: Instant,
    /// Time of the last invalidation by [`now`](Self::now); 0: never.
    times: Box<[AtomicU64; SLOTS]>,
}

impl Default for RecentInvalidations {
    fn default() -> Self {
        Self { begun: Instant::now(), times: Box::new([const { AtomicU64::new(0) }; SLOTS]) }
    }
}

impl RecentInvalidations {
    /// Returns milliseconds, offset by the window so that 0 is never recent.
    fn now(&self) -> u64 {
        (INVALIDATION_WINDOW + self.begun.elapsed()).as_millis() as u64
    }

    pub(crate) fn record(&self, num: u64) {
        self.times[num as usize % SLOTS].store(self.now(), Ordering::Release);
    }

    pub(crate) fn is_recent(&self, num: u64) -> bool {
        let time = self.times[num as usize % SLOTS].load(Ordering::Acquire);
        self.now() < time + INVALIDATION_WINDOW.as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_fresh_for_a_moment() {
        let invalidations = RecentInvalidations::default();
        assert!(!invalidations.is_recent(1), "a new table has no recent invalidations");
        invalidations.record(1);
        assert!(invalidations.is_recent(1) && !invalidations.is_recent(2));
        std::thread::sleep(INVALIDATION_WINDOW + Duration::from_millis(1));
        assert!(!invalidations.is_recent(1));
    }
}
