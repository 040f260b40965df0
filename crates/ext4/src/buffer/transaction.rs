//! Who may change something now: handles come and go, and a commit waits for them to end.
//!
//! All that handles do here is to count themselves in one word and out again: writers on several processors meet at it for
//! every change, and would wait for each other at a lock.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::sync::{AtomicU64, Condvar, Mutex};
use crate::cache_padded::CachePadded;
use crate::error::{Error, Result};

/// Number of a transaction, from 1 on.
pub(crate) type Tid = u64;

/// One handle; below it, the blocks that all of them may still change.
const HANDLE: u64 = 1 << 32;
/// Nobody comes in: a commit waits for those who are, or takes what they changed.
const FREEZING: u64 = 1 << 63;
const ABORTED: u64 = 1 << 62;
/// It is known since when there is a running transaction.
const JOINED: u64 = 1 << 61;

fn handles(state: u64) -> u64 {
    (state & !(FREEZING | ABORTED | JOINED)) / HANDLE
}

fn promised(state: u64) -> u32 {
    state as u32
}

pub(super) struct RunningTransaction {
    /// Handles, promises and flags.
    state: CachePadded<AtomicU64>,
    /// Changed while there are no handles.
    running: AtomicU64,
    committed: AtomicU64,
    /// When the running transaction was first joined. Also what those lock who wait for `changed`.
    since: Mutex<Option<Instant>>,
    /// The last handle ended, or the gate is open again.
    changed: Condvar,
    /// Blocks that one transaction may change.
    limit: u32,
}

pub(super) enum Joined {
    In,
    /// This transaction must be committed first.
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

    /// Joins the running transaction, with a promise of at most `credits` changed blocks.
    pub(super) fn enter(&self, credits: u32, dirty: impl Fn() -> u32) -> Result<Joined> {
        debug_assert!(credits < 1 << 24, "many such promises fit their part of the word");
        loop {
            // Counted first: what others dirty from here on was promised before, or is seen as dirty below. Who counts
            // himself out again because he may not stay is in nobody's way, but for a commit that came too early.
            let before = self.state.fetch_add(HANDLE + u64::from(credits), Ordering::SeqCst);
            if before & (FREEZING | ABORTED) == 0 {
                let dirty = dirty();
                // The first handle is let in however much it wants: nobody would make room for it.
                let empty = handles(before) == 0 && dirty == 0;
                let all = u64::from(dirty) + u64::from(promised(before)) + u64::from(credits);
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
        let leaving = HANDLE + u64::from(credits);
        let after = self.state.fetch_sub(leaving, Ordering::SeqCst) - leaving;
        if handles(after) == 0 && after & FREEZING != 0 {
            self.notify();
        }
    }

    /// After a change of the word for which somebody may wait.
    fn notify(&self) {
        // Who waits looks before he does, under this lock.
        drop(self.since.lock());
        self.changed.notify_all();
    }

    /// Ends the running transaction and starts the next, with `take` in between, while there are no handles. `None`
    /// after an abort: what a handle left half done must not be taken. One at a time.
    pub(super) fn freeze<R>(&self, take: impl FnOnce(Tid) -> R) -> Option<R> {
        let mut since = self.since.lock();
        let mut state = self.state.fetch_or(FREEZING, Ordering::SeqCst);
        // One word has both: a handle that aborts does so before it leaves.
        while handles(state) > 0 && state & ABORTED == 0 {
            self.changed.wait(&mut since);
            state = self.state.load(Ordering::SeqCst);
        }
        if state & ABORTED != 0 {
            self.open(FREEZING);
            return None;
        }
        let tid = self.running();
        // Those who want to enter wait for the flag and not for the lock, which guards no long work.
        drop(since);
        let taken = take(tid);
        let mut since = self.since.lock();
        self.running.store(tid + 1, Ordering::Release);
        *since = None;
        self.open(FREEZING | JOINED);
        Some(taken)
    }

    /// Lets handles in again. The lock is held.
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

    /// How long ago the running transaction was first joined.
    pub(super) fn age(&self) -> Option<Duration> {
        self.since.lock().map(|since| since.elapsed())
    }

    /// Lets nobody in any more; tells whether anybody was before.
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
    fn a_commit_meets_nobody_inside_and_all_promises_fit() {
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
            gate.set_committed(frozen.expect("nobody aborts"));
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
                        // All that was promised.
                        dirty.fetch_add(credits, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        gate.leave(credits);
                    }
                });
            }
        });
        commit(gate.running());
        let promised: u32 = (0..4).flat_map(|thread| (0..10_000).map(move |n| 1 + (n + thread) % 7)).sum();
        assert_eq!((made.into_inner(), gate.age()), (promised, None));
        assert!(gate.abort() && !gate.abort());
        assert!(matches!(gate.enter(1, || 0), Err(Error::ReadOnly)));
    }
}
