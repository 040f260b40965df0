//! What changed lately, for answers that were read from the source before and are given after.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// Places; what shares one is taken for changed too often, never too rarely.
const PLACES: usize = 4096;

/// A point in the order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

/// The last event of each name and each inode.
///
/// Whoever hears of an event stamps it first, and looks up whom to tell afterwards. Whoever answers takes the moment
/// first, reads the source, makes the node known, and looks at the stamps last. So of an event in between either the
/// answer knows, or the listener finds the node.
#[derive(Debug)]
pub struct Stamps {
    now: AtomicU64,
    /// Everything may have changed at this moment.
    all: AtomicU64,
    last: Box<[AtomicU64]>,
}

impl Default for Stamps {
    fn default() -> Self {
        let last = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { now: AtomicU64::new(1), all: AtomicU64::new(0), last }
    }
}

impl Stamps {
    fn place(&self, key: impl Hash) -> &AtomicU64 {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.last[hasher.finish() as usize % PLACES]
    }

    /// This moment. Events that are stamped later have one that is not smaller.
    pub fn now(&self) -> Moment {
        Moment(self.now.load(Ordering::SeqCst))
    }

    /// Something happened to what `key` stands for.
    pub fn stamp(&self, key: impl Hash) {
        let moment = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.place(key).fetch_max(moment, Ordering::SeqCst);
    }

    /// Anything may have happened to all.
    pub fn stamp_all(&self) {
        let moment = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.all.fetch_max(moment, Ordering::SeqCst);
    }

    /// Whether nothing happened since then.
    pub fn is_quiet(&self, key: impl Hash, since: Moment) -> bool {
        self.place(key).load(Ordering::SeqCst) <= since.0 && self.all.load(Ordering::SeqCst) <= since.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_events_are_seen_and_earlier_ones_are_not() {
        let stamps = Stamps::default();
        stamps.stamp(b"name");
        let moment = stamps.now();
        assert!(stamps.is_quiet(b"name", moment));
        stamps.stamp(b"other");
        assert!(stamps.is_quiet(b"name", moment));
        stamps.stamp(b"name");
        assert!(!stamps.is_quiet(b"name", moment));
        let moment = stamps.now();
        assert!(stamps.is_quiet(b"name", moment));
        stamps.stamp_all();
        assert!(!stamps.is_quiet(b"name", moment));
    }
}
