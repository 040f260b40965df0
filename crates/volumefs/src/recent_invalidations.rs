//! Files whose invalidation was sent to the kernel a moment ago.
//!
//! The kernel ignores a length in a reply that crosses an invalidation. Opens check for that, so the times are kept for files
//! that nobody has open, too: in a table of constant size.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time after which the kernel has processed an invalidation, and has answered the reads for which it requested the length.
pub(crate) const INVALIDATION_WINDOW: Duration = Duration::from_millis(50);

/// Number of slots. Files that share a slot share their invalidations.
const FILES: usize = 4096;

pub(crate) struct RecentInvalidations {
    begun: Instant,
    /// Time of the last invalidation by [`now`](Self::now); 0: never.
    told: Box<[AtomicU64; FILES]>,
}

impl Default for RecentInvalidations {
    fn default() -> Self {
        Self { begun: Instant::now(), told: Box::new([const { AtomicU64::new(0) }; FILES]) }
    }
}

impl RecentInvalidations {
    /// Returns milliseconds, offset by the window so that 0 is never recent.
    fn now(&self) -> u64 {
        (INVALIDATION_WINDOW + self.begun.elapsed()).as_millis() as u64
    }

    pub(crate) fn note(&self, num: u64) {
        self.told[num as usize % FILES].store(self.now(), Ordering::Release);
    }

    pub(crate) fn are_fresh(&self, num: u64) -> bool {
        let told = self.told[num as usize % FILES].load(Ordering::Acquire);
        self.now() < told + INVALIDATION_WINDOW.as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_fresh_for_a_moment() {
        let news = RecentInvalidations::default();
        assert!(!news.are_fresh(1), "from the beginning on");
        news.note(1);
        assert!(news.are_fresh(1) && !news.are_fresh(2));
        std::thread::sleep(INVALIDATION_WINDOW + Duration::from_millis(1));
        assert!(!news.are_fresh(1));
    }
}
