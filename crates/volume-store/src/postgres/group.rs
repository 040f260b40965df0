//! Group commit: batches that arrive during a commit are committed together, in one transaction.
//!
//! A transaction locks the volume's row until it is durable: committed separately, each batch would wait for all before it, one
//! fsync after the other. A batch that finds no commit running is committed at once; the others wait, and the first of them
//! then commits all.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use shunt_volume_types::id::NodeName;

use super::CommitResults;
use crate::{StoreError, Transaction};

/// Limits of one transaction: it is all in memory, and others wait for its end.
const MAX_BATCHES: usize = 256;
const MAX_ITEMS: usize = 4096;

/// A batch to commit.
#[derive(Clone, Copy)]
pub(super) struct PendingBatch<'a> {
    pub node: &'a NodeName,
    pub token: u128,
    pub items: &'a [Transaction],
}

/// A queued batch.
struct QueuedBatch {
    node: NodeName,
    token: u128,
    items: Vec<Transaction>,
    answer: Mutex<Option<Result<CommitResults, StoreError>>>,
}

impl QueuedBatch {
    fn part(&self) -> PendingBatch<'_> {
        PendingBatch { node: &self.node, token: self.token, items: &self.items }
    }
}

/// The queue of batches that this process commits to a volume.
#[derive(Default)]
pub(super) struct Group {
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Default)]
struct State {
    /// A commit is running.
    busy: bool,
    waiting: VecDeque<Arc<QueuedBatch>>,
}

impl State {
    /// Dequeues the batches to commit together with `first`, in order of arrival. A retry of a batch in the same transaction is
    /// left in the queue, to be answered with the first one's result afterwards.
    fn take(&mut self, first: PendingBatch<'_>) -> Vec<Arc<QueuedBatch>> {
        let mut taken: Vec<Arc<QueuedBatch>> = Vec::new();
        let mut items = first.items.len();
        while taken.len() + 1 < MAX_BATCHES
            && let Some(next) = self.waiting.front()
        {
            items += next.items.len();
            let is_next = |part: PendingBatch<'_>| (part.token, part.node) == (next.token, &next.node);
            if items > MAX_ITEMS || is_next(first) || taken.iter().any(|other| is_next(other.part())) {
                break;
            }
            taken.extend(self.waiting.pop_front());
        }
        taken
    }
}

/// Ends a group commit when dropped, so that the others do not wait for one that panicked.
struct RunningCommit<'a> {
    group: &'a Group,
    others: Vec<Arc<QueuedBatch>>,
}

impl Drop for RunningCommit<'_> {
    fn drop(&mut self) {
        self.group.state.lock().busy = false;
        for other in &self.others {
            let mut answer = other.answer.lock();
            if answer.is_none() {
                *answer = Some(Err(StoreError::Unreachable("the commit was abandoned".into())));
            }
        }
        self.group.done.notify_all();
    }
}

impl Group {
    /// Commits a batch, perhaps together with others. `commit` performs one transaction and returns an answer for each part.
    pub fn commit(
        &self,
        part: PendingBatch<'_>,
        commit: impl Fn(&[PendingBatch<'_>]) -> Result<Vec<CommitResults>, StoreError>,
    ) -> Result<CommitResults, StoreError> {
        let mut state = self.state.lock();
        if state.busy {
            let queued = Arc::new(QueuedBatch {
                node: part.node.clone(),
                token: part.token,
                items: part.items.to_vec(),
                answer: Mutex::new(None),
            });
            state.waiting.push_back(queued.clone());
            while state.busy {
                self.done.wait(&mut state);
                if let Some(answer) = queued.answer.lock().take() {
                    return answer;
                }
            }
            state.waiting.retain(|other| !Arc::ptr_eq(other, &queued));
        }
        state.busy = true;
        let running = RunningCommit { group: self, others: state.take(part) };
        drop(state);
        let mut parts = vec![part];
        parts.extend(running.others.iter().map(|other| other.part()));
        let mut answers = match commit(&parts) {
            Ok(answers) => answers.into_iter().map(Ok).collect::<VecDeque<_>>(),
            Err(error) if running.others.is_empty() => return Err(error),
            Err(StoreError::Unreachable(why)) => {
                parts.iter().map(|_| Err(StoreError::Unreachable(why.clone()))).collect()
            }
            // The store may reject only one of them.
            Err(_) => parts.iter().map(|part| commit(&[*part])?.pop().ok_or_else(unanswered)).collect(),
        };
        let own = answers.pop_front().unwrap_or_else(|| Err(unanswered()));
        for (other, answer) in running.others.iter().zip(answers) {
            *other.answer.lock() = Some(answer);
        }
        own
    }
}

fn unanswered() -> StoreError {
    StoreError::Damaged("a batch has no result".into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use shunt_volume_types::id::Seq;

    fn answer(parts: &[PendingBatch<'_>]) -> Vec<CommitResults> {
        parts.iter().map(|part| vec![Ok(Seq(part.token as u64))]).collect()
    }

    /// Lets the first commit run until batches with these tokens are queued.
    fn commit_queued(
        tokens: &[u128],
        commit: impl Fn(&[PendingBatch<'_>]) -> Result<Vec<CommitResults>, StoreError> + Sync,
    ) -> Vec<u64> {
        let (group, node): (Group, NodeName) = (Group::default(), "a".parse().unwrap());
        let begun = AtomicUsize::new(0);
        let deadline = Instant::now() + Duration::from_secs(30);
        let until = |done: &dyn Fn() -> bool| {
            while !done() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let request = |token: u128| {
            let part = PendingBatch { node: &node, token, items: &[] };
            let answers = group.commit(part, |parts| {
                if begun.fetch_add(1, Ordering::SeqCst) == 0 {
                    until(&|| group.state.lock().waiting.len() == tokens.len());
                }
                commit(parts)
            });
            answers.map_or(0, |answers| answers[0].as_ref().unwrap().0)
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| request(1));
            until(&|| begun.load(Ordering::SeqCst) > 0);
            let others: Vec<_> = tokens.iter().map(|token| scope.spawn(move || request(*token))).collect();
            assert_eq!(first.join().unwrap(), 1);
            others.into_iter().map(|other| other.join().unwrap()).collect()
        })
    }

    #[test]
    fn waiting_commits_are_batched() {
        let turns = AtomicUsize::new(0);
        let answers = commit_queued(&[2, 3, 4, 5], |parts| {
            turns.fetch_add(1, Ordering::SeqCst);
            Ok(answer(parts))
        });
        assert_eq!((answers, turns.into_inner()), (vec![2, 3, 4, 5], 2));
    }

    #[test]
    fn one_batch_twice_is_two_turns() {
        let turns = AtomicUsize::new(0);
        let answers = commit_queued(&[2, 2], |parts| {
            turns.fetch_add(1, Ordering::SeqCst);
            assert_eq!(parts.len(), 1);
            Ok(answer(parts))
        });
        assert_eq!((answers, turns.into_inner()), (vec![2, 2], 3));
    }

    #[test]
    fn one_that_cannot_be_taken_fails_alone() {
        let answers = commit_queued(&[2, 3, 4], |parts| match parts.iter().any(|part| part.token == 3) {
            true => Err(StoreError::Damaged(String::new())),
            false => Ok(answer(parts)),
        });
        assert_eq!(answers, [2, 0, 4]);
    }

    #[test]
    fn out_of_reach_for_one_is_so_for_all() {
        let turns = AtomicUsize::new(0);
        let answers = commit_queued(&[2, 3], |parts| match turns.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(answer(parts)),
            _ => Err(StoreError::Unreachable(String::new())),
        });
        assert_eq!((answers, turns.into_inner()), (vec![0, 0], 2));
    }
}
