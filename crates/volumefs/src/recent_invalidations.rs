//! Of which files the kernel was to be told a moment ago that they changed.
//!
//! An answer with the length of a file that crosses such news is not taken in by the kernel. They are asked for when a file is
//! opened, so they are kept of files that nobody has open as well: as much of each, however many there are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Within it the kernel has taken in what it was told, and a read is answered for whose sake it asked for the length.
pub(crate) const INVALIDATION_WINDOW: Duration = Duration::from_millis(50);

/// Files that are told apart. Of two that are not, one is taken to have the news of the other.
const FILES: usize = 4096;

pub(crate) struct RecentInvalidations {
    begun: Instant,
    /// When, by [`now`](Self::now); 0: never.
    told: Box<[AtomicU64; FILES]>,
}

impl Default for RecentInvalidations {
    fn default() -> Self {
        Self { begun: Instant::now(), told: Box::new([const { AtomicU64::new(0) }; FILES]) }
    }
}

impl RecentInvalidations {
    /// In milliseconds, with a moment before the beginning: what was never told of is not new then.
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
