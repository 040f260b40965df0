//! Who may change something now: handles come and go, and a commit waits for them to end.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::sync::{AtomicU64, Condvar, Mutex};
use crate::error::{Error, Result};

/// Number of a transaction, from 1 on.
pub(crate) type Tid = u64;

struct State {
    handles: u32,
    /// Blocks that the handles may still change.
    promised: u32,
    freezing: bool,
    aborted: bool,
    /// When the running transaction was first joined.
    since: Option<Instant>,
}

pub(super) struct Gate {
    /// Changed while there are no handles.
    running: AtomicU64,
    committed: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
    /// Blocks that one transaction may change.
    limit: u32,
}

pub(super) enum Entered {
    In,
    /// This transaction must be committed first.
    Full(Tid),
}

impl Gate {
    pub(super) fn new(limit: u32) -> Self {
        let state = State { handles: 0, promised: 0, freezing: false, aborted: false, since: None };
        let (running, committed) = (AtomicU64::new(1), AtomicU64::new(0));
        Self { running, committed, state: Mutex::new(state), changed: Condvar::new(), limit }
    }

    /// Joins the running transaction, with a promise of at most `credits` changed blocks.
    pub(super) fn enter(&self, credits: u32, dirty: impl Fn() -> u32) -> Result<Entered> {
        let mut state = self.state.lock();
        loop {
            if state.aborted {
                return Err(Error::ReadOnly);
            }
            if !state.freezing {
                // The first handle is let in however much it wants: nobody would make room for it.
                let empty = state.handles == 0 && dirty() == 0;
                if empty || dirty() + state.promised + credits <= self.limit {
                    state.handles += 1;
                    state.promised += credits;
                    state.since.get_or_insert_with(Instant::now);
                    return Ok(Entered::In);
                }
                return Ok(Entered::Full(self.running()));
            }
            self.changed.wait(&mut state);
        }
    }

    pub(super) fn leave(&self, credits: u32) {
        let mut state = self.state.lock();
        state.handles -= 1;
        state.promised -= credits;
        if state.handles == 0 && state.freezing {
            self.changed.notify_all();
        }
    }

    /// Ends the running transaction and starts the next, with `take` in between, while there are no handles. `None`
    /// after an abort: what a handle left half done must not be taken.
    pub(super) fn freeze<R>(&self, take: impl FnOnce(Tid) -> R) -> Option<R> {
        let mut state = self.state.lock();
        state.freezing = true;
        while state.handles > 0 && !state.aborted {
            self.changed.wait(&mut state);
        }
        if state.aborted {
            state.freezing = false;
            self.changed.notify_all();
            return None;
        }
        let tid = self.running();
        // Those who want to enter wait for `freezing` and not for the lock, which guards no long work.
        drop(state);
        let taken = take(tid);
        let mut state = self.state.lock();
        self.running.store(tid + 1, Ordering::Release);
        state.since = None;
        state.freezing = false;
        self.changed.notify_all();
        Some(taken)
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
        self.state.lock().since.map(|since| since.elapsed())
    }

    /// Lets nobody in any more; tells whether anybody was before.
    pub(super) fn abort(&self) -> bool {
        let before = std::mem::replace(&mut self.state.lock().aborted, true);
        self.changed.notify_all();
        !before
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.state.lock().aborted
    }
}
