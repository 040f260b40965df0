//! Recently answered names, whose lookup replies may still be in flight to the kernel.
//!
//! The kernel revalidates an expired name by a lookup without holding a lock. An expiry sent between the reply and its processing
//! by the kernel finds the name still expired, and the reply, which is already outdated, makes the name valid again.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::id::NodeId;

/// Names are hashed into this many slots. A collision only causes a superfluous expiry and one more lookup.
const HASH_SLOTS: usize = 4096;

/// A reply begun longer ago than this is taken to have reached the kernel.
const INFLIGHT_TIMEOUT: Duration = Duration::from_secs(16);

/// The time of the last reply for each slot.
#[derive(Debug, Default)]
pub(super) struct InflightNames {
    times: OnceLock<ReplyTimes>,
}

#[derive(Debug)]
struct ReplyTimes {
    since: Instant,
    hasher: RandomState,
    /// Milliseconds since `since`; 0: never.
    slots: Box<[AtomicU64]>,
}

impl ReplyTimes {
    fn now(&self) -> u64 {
        self.since.elapsed().as_millis() as u64
    }

    fn slot(&self, parent: NodeId, name: &[u8]) -> &AtomicU64 {
        let hash = self.hasher.hash_one((parent.0, name));
        &self.slots[hash as usize % HASH_SLOTS]
    }
}

impl InflightNames {
    /// Records that a lookup of this name is being answered. Costs nothing until the first expiry of a name.
    pub(super) fn record(&self, parent: NodeId, name: &[u8]) {
        if let Some(kept) = self.times.get() {
            kept.slot(parent, name).store(kept.now().max(1), Ordering::Relaxed);
        }
    }

    /// Reports whether a reply for this name may still be in flight.
    pub(super) fn may_be_in_flight(&self, parent: NodeId, name: &[u8]) -> bool {
        let lasts = INFLIGHT_TIMEOUT.as_millis() as u64;
        match self.times.get() {
            Some(kept) => {
                let (now, answered) = (kept.now(), kept.slot(parent, name).load(Ordering::Relaxed));
                // Replies from before recording began are unknown.
                now < lasts || (answered > 0 && now < answered.saturating_add(lasts))
            }
            None => {
                self.times.get_or_init(|| ReplyTimes {
                    since: Instant::now(),
                    hasher: RandomState::new(),
                    slots: (0..HASH_SLOTS).map(|_| AtomicU64::new(0)).collect(),
                });
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(7);

    fn begun_before(answers: &mut InflightNames, ago: Duration) {
        let kept = answers.times.get_mut().unwrap();
        kept.since = kept.since.checked_sub(ago).unwrap();
    }

    #[test]
    fn reply_before_the_first_note_may_be_in_flight() {
        let mut answers = InflightNames::default();
        answers.record(NODE, b"before");
        assert!(answers.may_be_in_flight(NODE, b"before"));
        assert!(answers.may_be_in_flight(NODE, b"another"));
        begun_before(&mut answers, INFLIGHT_TIMEOUT);
        assert!(!answers.may_be_in_flight(NODE, b"before"));
    }

    #[test]
    fn an_answer_is_on_its_way_for_a_while() {
        let mut answers = InflightNames::default();
        assert!(answers.may_be_in_flight(NODE, b"name"));
        begun_before(&mut answers, INFLIGHT_TIMEOUT);
        answers.record(NODE, b"name");
        assert!(answers.may_be_in_flight(NODE, b"name"));
        begun_before(&mut answers, INFLIGHT_TIMEOUT);
        assert!(!answers.may_be_in_flight(NODE, b"name"));
    }
}
