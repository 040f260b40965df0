//! A pool of backing files that are created ahead of use.
//!
//! Creating or removing a file of the cache's file system costs more than everything else done for it, so a worker thread
//! does both in the background. A pooled file already has its inode number.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::replica::Inner;
use crate::replica::db::INO_RESERVATION;

/// Maximum number of pooled files, each of which is open. Fewer are kept if fewer are used.
const MAX_READY_FILES: usize = 256;
const MIN_READY_FILES: usize = 8;

/// Free space below which the disk is low. Creating a file then first waits until removed files are unlinked, at most once
/// per [`FORCED_REAP_INTERVAL`].
const LOW_SPACE_BYTES: u64 = 64 << 20;
const FORCED_REAP_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of checks for low space: too short for a disk to fill up from above the low mark.
const SPACE_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Interval at which removed files are unlinked.
const REAP_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of unlinking while the disk is low on space.
const LOW_SPACE_REAP_INTERVAL: Duration = Duration::from_millis(10);

/// Longest time that unlinking yields to users who remove more files.
const FOREGROUND_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Files unlinked in one batch; in between, files are created for waiting users.
const REAP_BATCH_FILES: u32 = 512;

/// Backing files that belong to no object yet.
#[derive(Default)]
pub(crate) struct BackingFilePool {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    ready: VecDeque<(u64, File)>,
    /// The number of files to keep; 0 until the first request. Without a worker thread none are created.
    target: usize,
    /// More files are to be created.
    needs_refill: bool,
    /// Some files are to be unlinked.
    has_unlinks: bool,
    /// Some files were removed and are not unlinked yet.
    pending: bool,
    /// When an operation that needs space last checked for it, and last forced files to be unlinked.
    last_space_check: Option<Instant>,
    last_forced_reap: Option<Instant>,
    has_thread: bool,
    ended: bool,
}

impl BackingFilePool {
    /// Takes a file with its inode number, if one is ready.
    pub(crate) fn take(&self) -> Option<(u64, File)> {
        let mut state = self.state.lock();
        let taken = state.ready.pop_front();
        if taken.is_none() && !state.needs_refill {
            state.target = (state.target * 2).clamp(MIN_READY_FILES, MAX_READY_FILES);
        }
        if state.has_thread && !state.needs_refill && state.ready.len() * 2 <= state.target {
            state.needs_refill = true;
            self.wake.notify_one();
        }
        taken
    }

    /// Reports whether the worker has to create files, or to end.
    fn has_request(&self) -> bool {
        let state = self.state.lock();
        state.needs_refill || state.ended
    }

    /// Wakes the worker because files may have been removed.
    pub(crate) fn notify_removed(&self) {
        let mut state = self.state.lock();
        state.pending = true;
        if !state.has_unlinks {
            state.has_unlinks = true;
            self.wake.notify_one();
        }
    }

    fn has_some(&self, has_doomed: bool) -> bool {
        has_doomed || self.state.lock().pending
    }

    /// Reports whether a check for low space is due: a check for each created file would be too many.
    fn is_space_check_due(&self) -> bool {
        is_due(&mut self.state.lock().last_space_check, SPACE_CHECK_INTERVAL)
    }

    /// Reports whether an operation may wait for files to be unlinked. Limited in frequency, since open files cannot be.
    fn is_forced_reap_due(&self) -> bool {
        is_due(&mut self.state.lock().last_forced_reap, FORCED_REAP_INTERVAL)
    }

    /// Takes out files whose numbers recovery would not examine after a crash.
    fn take_stale(&self, reserved: u64) -> Vec<u64> {
        let mut state = self.state.lock();
        let first = reserved.saturating_sub(2 * INO_RESERVATION);
        let (old, ready) = state.ready.drain(..).partition(|(num, _)| *num < first);
        state.ready = ready;
        let old: VecDeque<(u64, File)> = old;
        old.into_iter().map(|(num, _)| num).collect()
    }
}

/// Reports whether an interval has passed; if so, the next one begins.
fn is_due(last: &mut Option<Instant>, after: Duration) -> bool {
    let now = Instant::now();
    let is_due = last.is_none_or(|last| now.duration_since(last) >= after);
    if is_due {
        *last = Some(now);
    }
    is_due
}

impl Inner {
    /// Unlinks removed files at once if the disk of the cache is low on space, instead of waiting until it is idle.
    pub(crate) fn reap_if_low_on_space(&self) {
        let pool = &self.shared.backing_pool;
        if !pool.is_space_check_due() || !self.is_low_on_space() {
            return;
        }
        let has_doomed = self.db.lock().has_pending_unlinks;
        if pool.has_some(has_doomed) && pool.is_forced_reap_due() {
            while matches!(self.reap(REAP_BATCH_FILES), Ok(reaped) if reaped as u32 == REAP_BATCH_FILES) {}
        }
    }

    fn is_low_on_space(&self) -> bool {
        let found = self.shared.files.space();
        found.is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) < LOW_SPACE_BYTES)
    }
}

/// The worker thread, which creates and removes files until this is dropped.
pub(crate) struct PoolWorker {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl PoolWorker {
    pub(crate) fn start(inner: Arc<Inner>) -> io::Result<Self> {
        let shared = inner.clone();
        let thread = std::thread::Builder::new().name("replica-files".into()).spawn(move || run(&shared))?;
        inner.shared.backing_pool.state.lock().has_thread = true;
        Ok(Self { inner, thread: Some(thread) })
    }
}

impl Drop for PoolWorker {
    fn drop(&mut self) {
        let pool = &self.inner.shared.backing_pool;
        pool.state.lock().ended = true;
        pool.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
        let left: Vec<_> = {
            let mut state = pool.state.lock();
            state.has_thread = false;
            state.ready.drain(..).collect()
        };
        for (num, _) in left {
            self.inner.shared.files.remove(num).ok();
        }
    }
}

fn run(inner: &Inner) {
    let pool = &inner.shared.backing_pool;
    loop {
        let is_low = {
            let mut state = pool.state.lock();
            while !state.needs_refill && !state.has_unlinks && !state.ended {
                pool.wake.wait(&mut state);
            }
            if !state.needs_refill && !state.ended {
                // Removals come in bursts, so they are batched, unless the disk is low on space.
                let rest = if inner.is_low_on_space() { LOW_SPACE_REAP_INTERVAL } else { REAP_INTERVAL };
                pool.wake.wait_for(&mut state, rest);
            }
            if state.ended {
                return;
            }
            state.needs_refill
        };
        match is_low {
            true => fill(inner),
            false => reap(inner),
        }
    }
}

fn fill(inner: &Inner) {
    let pool = &inner.shared.backing_pool;
    let count = {
        let state = pool.state.lock();
        state.target.saturating_sub(state.ready.len())
    };
    let numbers = inner.change(|db, _| {
        let numbers = (0..count).map(|_| db.new_number()).collect::<Result<Vec<_>, _>>()?;
        Ok((numbers, db.reserved_until()))
    });
    if let Ok((numbers, reserved)) = numbers {
        for num in numbers {
            // If there is no space, users create their files directly and get the error.
            let Ok(file) = inner.shared.files.create(num) else { break };
            pool.state.lock().ready.push_back((num, file));
        }
        for num in pool.take_stale(reserved) {
            inner.shared.files.remove(num).ok();
        }
    }
    pool.state.lock().needs_refill = false;
}

fn reap(inner: &Inner) {
    inner.shared.backing_pool.state.lock().has_unlinks = false;
    // A user who removes files needs the disk and the processor for the next ones.
    if !inner.is_low_on_space() {
        inner
            .foreground
            .wait_until_idle(FOREGROUND_IDLE_TIMEOUT, || !inner.shared.backing_pool.has_request());
    }
    let reaped = inner.reap(REAP_BATCH_FILES);
    inner.shared.backing_pool.state.lock().pending = false;
    match reaped {
        // There may be more.
        Ok(reaped) if reaped as u32 == REAP_BATCH_FILES => inner.shared.backing_pool.notify_removed(),
        Ok(_) => {}
        Err(errno) => tracing::warn!(
            "cannot unlink the backing files of deleted files: \
            {errno}; their space is freed later"
        ),
    }
}
