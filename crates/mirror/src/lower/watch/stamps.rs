//! Stamps of recent changes, by which a request handler detects that the data of its reply may be out of date.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of slots. Keys that share a slot may appear changed when they are not, never the reverse.
const SLOTS: usize = 4096;

/// A position in the order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

/// The last event of each name and each inode.
///
/// The event handler stamps an event first, and looks up the affected nodes afterwards. A request handler takes the
/// moment first, reads the source, registers the node, and checks the stamps last. So for an event in between, either
/// the request handler sees the stamp, or the event handler finds the node.
#[derive(Debug)]
pub(crate) struct Stamps {
    now: AtomicU64,
    /// The moment at which everything may have changed.
    all: AtomicU64,
    last: Box<[AtomicU64]>,
}

impl Default for Stamps {
    fn default() -> Self {
        let last = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self { now: AtomicU64::new(1), all: AtomicU64::new(0), last }
    }
}

impl Stamps {
    fn slot(&self, key: impl Hash) -> &AtomicU64 {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.last[hasher.finish() as usize % SLOTS]
    }

    /// Returns the current moment. Events stamped later have a moment that is not smaller.
    pub(crate) fn now(&self) -> Moment {
        Moment(self.now.load(Ordering::SeqCst))
    }

    /// Stamps a change of the object with this key.
    pub(crate) fn stamp(&self, key: impl Hash) {
        let moment = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.slot(key).fetch_max(moment, Ordering::SeqCst);
    }

    /// Stamps a change of everything.
    pub(crate) fn stamp_all(&self) {
        let moment = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.all.fetch_max(moment, Ordering::SeqCst);
    }

    /// Reports whether no change of the key was stamped since the given moment.
    pub(crate) fn is_quiet(&self, key: impl Hash, since: Moment) -> bool {
        self.slot(key).load(Ordering::SeqCst) <= since.0 && self.all.load(Ordering::SeqCst) <= since.0
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
