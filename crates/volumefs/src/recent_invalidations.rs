//! Of which files the kernel was to be told a moment ago that they changed.
//!
//! An answer with the length of a file that crosses such news is not taken in by the kernel. They are asked for when a file is
//! opened, so they are kept of files that nobody has open as well: as much of each, however many there are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Within it the kernel has taken in what it was told, and a read is answered for whose sake it asked for the length.
pub(crate) const INVALIDATION_WINDOW: Duration = Duration::from_millis(50);

/// Files that are told apart. Of two that are not, one is taken to have the news of the other.
const SLOTS: usize = 4096;

pub(crate) struct RecentInvalidations {
    begun: Instant,
    /// When, by [`now`](Self::now); 0: never.
    times: Box<[AtomicU64; SLOTS]>,
}

impl Default for RecentInvalidations {
    fn default() -> Self {
        Self { begun: Instant::now(), times: Box::new([const { AtomicU64::new(0) }; SLOTS]) }
    }
}

impl RecentInvalidations {
    /// In milliseconds, with a moment before the beginning: what was never told of is not new then.
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
        assert!(!invalidations.is_recent(1), "from the beginning on");
        invalidations.record(1);
        assert!(invalidations.is_recent(1) && !invalidations.is_recent(2));
        std::thread::sleep(INVALIDATION_WINDOW + Duration::from_millis(1));
        assert!(!invalidations.is_recent(1));
    }
}
