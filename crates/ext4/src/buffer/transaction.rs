//! The running transaction (T_RUNNING, T_LOCKED): handles join and leave it, and a commit waits until all have left.
//!
//! Handles are counted in one atomic word: every change by every processor passes through it, and a lock would be contended.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use shunt_sharded::CachePadded;

use super::sync::{AtomicU64, Condvar, Mutex};
use crate::error::{Error, Result};

/// Number of a transaction, from 1 on.
pub(crate) type Tid = u64;

/// Unit of the handle count; the lower bits hold the number of blocks that all handles may still change.
const HANDLE_UNIT: u64 = 1 << 32;
/// No handle may join: a commit waits for handles to leave, or takes the changes.
const FREEZING: u64 = 1 << 63;
const ABORTED: u64 = 1 << 62;
/// The start time of the running transaction is recorded.
const JOINED: u64 = 1 << 61;

fn handles(state: u64) -> u64 {
    (state & !(FREEZING | ABORTED | JOINED)) / HANDLE_UNIT
}

fn credits_of(state: u64) -> u32 {
    state as u32
}

pub(super) struct RunningTransaction {
    /// Handle count, credits and flags.
    state: CachePadded<AtomicU64>,
    /// Changes only while there are no handles.
    running: AtomicU64,
    committed: AtomicU64,
    /// Start time of the running transaction. Its lock also guards waiting on `changed`.
    since: Mutex<Option<Instant>>,
    /// Signalled when the last handle leaves, on abort, and when handles may join again.
    changed: Condvar,
    /// Maximum number of blocks that one transaction may change.
    limit: u32,
}

pub(super) enum Joined {
    In,
    /// The transaction has no room: it must be committed first.
    Full(Tid),
}

impl RunningTransaction {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            state: CachePadded::default(),
            running: AtomicU64::new(1),
            committed: AtomicU64::new(0),
            since: Mutex::new(None),
            changed: Condvar::new(),
            limit,
        }
    }

    /// Joins the running transaction, to change at most `credits` blocks.
    pub(super) fn enter(&self, credits: u32, dirty: impl Fn() -> u32) -> Result<Joined> {
        debug_assert!(credits < 1 << 24, "the credits exceed their bits of the word");
        loop {
            // Count first: blocks that others dirty from here on are covered by their credits or visible in `dirty` below. A
            // handle that counts itself out again because it may not stay can only cause an early commit.
            let before = self.state.fetch_add(HANDLE_UNIT + u64::from(credits), Ordering::SeqCst);
            if before & (FREEZING | ABORTED) == 0 {
                let dirty = dirty();
                // The first handle always joins, regardless of its credits: no commit could make room for it.
                let empty = handles(before) == 0 && dirty == 0;
                let all = u64::from(dirty) + u64::from(credits_of(before)) + u64::from(credits);
                if !empty && all > self.limit.into() {
                    let tid = self.running();
                    self.leave(credits);
                    return Ok(Joined::Full(tid));
                }
                if before & JOINED == 0 {
                    self.since.lock().get_or_insert_with(Instant::now);
                    self.state.fetch_or(JOINED, Ordering::SeqCst);
                }
                return Ok(Joined::In);
            }
            self.leave(credits);
            if before & ABORTED != 0 {
                return Err(Error::ReadOnly);
            }
            let mut since = self.since.lock();
            while self.state.load(Ordering::SeqCst) & (FREEZING | ABORTED) == FREEZING {
                self.changed.wait(&mut since);
            }
        }
    }

    pub(super) fn leave(&self, credits: u32) {
        let leaving = HANDLE_UNIT + u64::from(credits);
        let after = self.state.fetch_sub(leaving, Ordering::SeqCst) - leaving;
        if handles(after) == 0 && after & FREEZING != 0 {
            self.notify();
        }
    }

    /// Wakes waiters after a change of the word.
    fn notify(&self) {
        // Waiters check the word under this lock before they wait.
        drop(self.since.lock());
        self.changed.notify_all();
    }

    /// Ends the running transaction, calls `take`, and starts the next one, while there are no handles. Returns `None` after an
    /// abort: changes of an incomplete handle must not be taken. Calls must not overlap.
    pub(super) fn freeze<R>(&self, take: impl FnOnce(Tid) -> R) -> Option<R> {
        let mut since = self.since.lock();
        let mut state = self.state.fetch_or(FREEZING, Ordering::SeqCst);
        // Handle count and abort flag share one word: a handle that aborts does so before it leaves.
        while handles(state) > 0 && state & ABORTED == 0 {
            self.changed.wait(&mut since);
            state = self.state.load(Ordering::SeqCst);
        }
        if state & ABORTED != 0 {
            self.open(FREEZING);
            return None;
        }
        let tid = self.running();
        // Handles that want to join wait for the flag, not for the lock, which protects only short sections.
        drop(since);
        let taken = take(tid);
        let mut since = self.since.lock();
        self.running.store(tid + 1, Ordering::Release);
        *since = None;
        self.open(FREEZING | JOINED);
        Some(taken)
    }

    /// Lets handles join again. The caller holds the lock.
    fn open(&self, flags: u64) {
        self.state.fetch_and(!flags, Ordering::SeqCst);
        self.changed.notify_all();
    }

    pub(super) fn running(&self) -> Tid {
        self.running.load(Ordering::Acquire)
    }

    pub(super) fn committed(&self) -> Tid {
        self.committed.load(Ordering::Acquire)
    }

    pub(super) fn set_committed(&self, tid: Tid) {
        self.committed.store(tid, Ordering::Release);
    }

    /// Time since the running transaction was first joined.
    pub(super) fn age(&self) -> Option<Duration> {
        self.since.lock().map(|since| since.elapsed())
    }

    /// Lets no handle join any more; reports whether this was the first abort.
    pub(super) fn abort(&self) -> bool {
        let before = self.state.fetch_or(ABORTED, Ordering::SeqCst);
        self.notify();
        before & ABORTED == 0
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.state.load(Ordering::SeqCst) & ABORTED != 0
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn commit_waits_for_handles_and_credits_fit() {
        const LIMIT: u32 = 20;
        let gate = RunningTransaction::new(LIMIT);
        let (inside, dirty, made) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let log = Mutex::new(());
        let commit = |tid| {
            let _log = log.lock();
            if gate.committed() >= tid {
                return;
            }
            let frozen = gate.freeze(|frozen| {
                assert_eq!((frozen, inside.load(Ordering::SeqCst)), (tid, 0));
                let taken = dirty.swap(0, Ordering::SeqCst);
                assert!(taken <= LIMIT, "{taken} blocks in a transaction");
                made.fetch_add(taken, Ordering::SeqCst);
                frozen
            });
            gate.set_committed(frozen.expect("no thread aborts the transaction"));
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (gate, inside, dirty, commit) = (&gate, &inside, &dirty, &commit);
                scope.spawn(move || {
                    for n in 0..10_000_u32 {
                        let credits = 1 + (n + thread) % 7;
                        while let Joined::Full(tid) =
                            gate.enter(credits, || dirty.load(Ordering::SeqCst)).unwrap()
                        {
                            commit(tid);
                        }
                        assert!(gate.age().is_some());
                        inside.fetch_add(1, Ordering::SeqCst);
                        // Dirty as many blocks as the credits allow.
                        dirty.fetch_add(credits, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        gate.leave(credits);
                    }
                });
            }
        });
        commit(gate.running());
        let expected: u32 = (0..4).flat_map(|thread| (0..10_000).map(move |n| 1 + (n + thread) % 7)).sum();
        assert_eq!((made.into_inner(), gate.age()), (expected, None));
        assert!(gate.abort() && !gate.abort());
        assert!(matches!(gate.enter(1, || 0), Err(Error::ReadOnly)));
    }
}
