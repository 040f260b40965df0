//! Which names may be in an answer that is on its way.
//!
//! A name that the kernel has and doubts is confirmed by a lookup, under no lock: between the answer and the kernel's taking it
//! in, an "expire this name" finds the name as doubted as before, and the answer, old by then, has it believed after all.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::id::NodeId;

/// Names share these: one that is taken for another is expired again, and asked for once more, in vain.
const SLOTS: usize = 4096;

/// An answer that was begun longer ago was taken in.
const ON_ITS_WAY: Duration = Duration::from_secs(16);

/// When names were last answered.
#[derive(Debug, Default)]
pub(super) struct Answers {
    kept: OnceLock<Kept>,
}

#[derive(Debug)]
struct Kept {
    since: Instant,
    hasher: RandomState,
    /// Milliseconds since then; 0: never.
    slots: Box<[AtomicU64]>,
}

impl Kept {
    fn now(&self) -> u64 {
        self.since.elapsed().as_millis() as u64
    }

    fn slot(&self, parent: NodeId, name: &[u8]) -> &AtomicU64 {
        let hash = self.hasher.hash_one((parent.0, name));
        &self.slots[hash as usize % SLOTS]
    }
}

impl Answers {
    /// A name is being answered. Costs nothing before one was expired for the first time.
    pub(super) fn note(&self, parent: NodeId, name: &[u8]) {
        if let Some(kept) = self.kept.get() {
            kept.slot(parent, name).store(kept.now().max(1), Ordering::Relaxed);
        }
    }

    /// Whether the kernel may be about to take in what was answered of a name.
    pub(super) fn may_be_on_its_way(&self, parent: NodeId, name: &[u8]) -> bool {
        let lasts = ON_ITS_WAY.as_millis() as u64;
        match self.kept.get() {
            Some(kept) => {
                let (now, answered) = (kept.now(), kept.slot(parent, name).load(Ordering::Relaxed));
                // What was answered before any was noted is not known.
                now < lasts || (answered > 0 && now < answered.saturating_add(lasts))
            }
            None => {
                self.kept.get_or_init(|| Kept {
                    since: Instant::now(),
                    hasher: RandomState::new(),
                    slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
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

    fn begun_before(answers: &mut Answers, ago: Duration) {
        let kept = answers.kept.get_mut().unwrap();
        kept.since = kept.since.checked_sub(ago).unwrap();
    }

    #[test]
    fn what_was_answered_before_any_was_noted_may_be_on_its_way() {
        let mut answers = Answers::default();
        answers.note(NODE, b"before");
        assert!(answers.may_be_on_its_way(NODE, b"before"));
        assert!(answers.may_be_on_its_way(NODE, b"another"));
        begun_before(&mut answers, ON_ITS_WAY);
        assert!(!answers.may_be_on_its_way(NODE, b"before"));
    }

    #[test]
    fn an_answer_is_on_its_way_for_a_while() {
        let mut answers = Answers::default();
        assert!(answers.may_be_on_its_way(NODE, b"name"));
        begun_before(&mut answers, ON_ITS_WAY);
        answers.note(NODE, b"name");
        assert!(answers.may_be_on_its_way(NODE, b"name"));
        begun_before(&mut answers, ON_ITS_WAY);
        assert!(!answers.may_be_on_its_way(NODE, b"name"));
    }
}
