//! Backing files that are made before somebody asks for them.
//!
//! To make or remove a file of the cache's file system costs more than all else that is done for one, and nobody has to
//! wait for it: a thread does both. A spare file has its number already.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::replica::Inner;
use crate::replica::db::INO_RESERVATION;

/// Files made ahead at most: each is open. Fewer where less is asked for.
const MAX_READY_FILES: usize = 256;
const MIN_READY_FILES: usize = 8;

/// Free bytes below which the disk is short of space: who makes a file waits until those that are gone were removed then, so
/// often at most.
const LOW_SPACE_BYTES: u64 = 64 << 20;
const FORCED_REAP_INTERVAL: Duration = Duration::from_millis(100);
/// It is looked so often whether it is short: in that time a disk does not use up what counts as short.
const SPACE_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Removed files are removed from the disk so often.
const REAP_INTERVAL: Duration = Duration::from_secs(1);
/// The same where the disk is short of space.
const LOW_SPACE_REAP_INTERVAL: Duration = Duration::from_millis(10);

/// Users who remove more are let go first for so long.
const FOREGROUND_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Removed at once; between them, files are made for who waits.
const REAP_BATCH_FILES: u32 = 512;

/// Files that are nobody's as yet.
#[derive(Default)]
pub(crate) struct BackingFilePool {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    ready: VecDeque<(u64, File)>,
    /// So many are kept; none until the first is asked for, and none where no thread makes them.
    target: usize,
    /// More are to be made.
    needs_refill: bool,
    /// Some are to be removed.
    has_unlinks: bool,
    /// Some were, and are not yet.
    pending: bool,
    /// When who needed room last looked whether there is, and last removed them.
    last_space_check: Option<Instant>,
    last_forced_reap: Option<Instant>,
    has_thread: bool,
    ended: bool,
}

impl BackingFilePool {
    /// A file with its number, if one is ready.
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

    /// Somebody asks for files, or for the end.
    fn has_request(&self) -> bool {
        let state = self.state.lock();
        state.needs_refill || state.ended
    }

    /// Some files may have been removed.
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

    /// Whether who needs room is to look whether there is: all who make files would, each time.
    fn is_space_check_due(&self) -> bool {
        is_due(&mut self.state.lock().last_space_check, SPACE_CHECK_INTERVAL)
    }

    /// Whether who needs room may wait for files to be removed: not all the time, since some cannot be as long as they are open.
    fn is_forced_reap_due(&self) -> bool {
        is_due(&mut self.state.lock().last_forced_reap, FORCED_REAP_INTERVAL)
    }

    /// Those whose numbers a crash would not find again.
    fn take_stale(&self, reserved: u64) -> Vec<u64> {
        let mut state = self.state.lock();
        let first = reserved.saturating_sub(2 * INO_RESERVATION);
        let (old, ready) = state.ready.drain(..).partition(|(num, _)| *num < first);
        state.ready = ready;
        let old: VecDeque<(u64, File)> = old;
        old.into_iter().map(|(num, _)| num).collect()
    }
}

/// Whether so long has passed; the next time begins then.
fn is_due(last: &mut Option<Instant>, after: Duration) -> bool {
    let now = Instant::now();
    let is_due = last.is_none_or(|last| now.duration_since(last) >= after);
    if is_due {
        *last = Some(now);
    }
    is_due
}

impl Inner {
    /// Where the disk of the cache is short of space, removes files that are gone at once, rather than when nobody wants the disk.
    pub(crate) fn reap_if_low_on_space(&self) {
        let spare = &self.shared.backing_pool;
        if !spare.is_space_check_due() || !self.is_low_on_space() {
            return;
        }
        let has_doomed = self.core.lock().has_pending_unlinks;
        if spare.has_some(has_doomed) && spare.is_forced_reap_due() {
            while matches!(self.reap(REAP_BATCH_FILES), Ok(reaped) if reaped as u32 == REAP_BATCH_FILES) {}
        }
    }

    fn is_low_on_space(&self) -> bool {
        let found = self.shared.files.space();
        found.is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) < LOW_SPACE_BYTES)
    }
}

/// Makes and removes files as long as it lives.
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
        let spare = &self.inner.shared.backing_pool;
        spare.state.lock().ended = true;
        spare.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
        let left: Vec<_> = {
            let mut state = spare.state.lock();
            state.has_thread = false;
            state.ready.drain(..).collect()
        };
        for (num, _) in left {
            self.inner.shared.files.remove(num).ok();
        }
    }
}

fn run(inner: &Inner) {
    let spare = &inner.shared.backing_pool;
    loop {
        let is_low = {
            let mut state = spare.state.lock();
            while !state.needs_refill && !state.has_unlinks && !state.ended {
                spare.wake.wait(&mut state);
            }
            if !state.needs_refill && !state.ended {
                // Those who remove one remove more; but somebody may be about to use the room.
                let rest = if inner.is_low_on_space() { LOW_SPACE_REAP_INTERVAL } else { REAP_INTERVAL };
                spare.wake.wait_for(&mut state, rest);
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
    let spare = &inner.shared.backing_pool;
    let wanted = {
        let state = spare.state.lock();
        state.target.saturating_sub(state.ready.len())
    };
    let numbers = inner.change(|core, _| {
        let numbers = (0..wanted).map(|_| core.new_number()).collect::<Result<Vec<_>, _>>()?;
        Ok((numbers, core.reserved_until()))
    });
    if let Ok((numbers, reserved)) = numbers {
        for num in numbers {
            // Where there is no room, who asks for a file makes it, and is told.
            let Ok(file) = inner.shared.files.create(num) else { break };
            spare.state.lock().ready.push_back((num, file));
        }
        for num in spare.take_stale(reserved) {
            inner.shared.files.remove(num).ok();
        }
    }
    spare.state.lock().needs_refill = false;
}

fn reap(inner: &Inner) {
    inner.shared.backing_pool.state.lock().has_unlinks = false;
    // Who removes files wants the disk and the processor for the next ones.
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
        Err(errno) => tracing::warn!("cannot remove what is gone: {errno}"),
    }
}
