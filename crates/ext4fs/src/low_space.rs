//! Low-space mode: near the end of space each write is preceded by a GETATTR to the daemon, which has dirty data written out
//! first.
//!
//! With the write-back cache the kernel accepts data before the file system has blocks for it, up to a fifth of the memory, and
//! only the kernel knows how much. Two mechanisms bound the data that is accepted although it does not fit:
//!
//! 1. The dirty limit of the mount follows the free space ([`DirtyData`]): the kernel itself stops a writer once a quarter of
//!    the free space is dirty, however late this process runs. Where it cannot be changed (without root), it is one percent of
//!    the memory that may be dirty.
//! 2. A thread compares the free space with the dirty data, as often as the fastest writer could use up the difference. The dirty
//!    data is at most the limit of the mount, and at most all dirty pages of the machine (`Dirty` and `Writeback` of
//!    `/proc/meminfo`). Where the difference falls below [`LOW_SPACE_BYTES`], the cached attributes of files that are open for
//!    writing are invalidated, and later ones are not cached beyond one request. The kernel then sends a GETATTR before each
//!    `write(2)`, whose handler has the kernel write out dirty data. A writer thus gets ENOSPC at most one `write(2)` late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use shunt_ext4::{Filesystem, ReservedAccess};
use shunt_fuse::Caches;

use crate::dirty_data::DirtyData;
use crate::writers::Writers;

/// Below this many free bytes, less dirty ones, each write is preceded by a GETATTR.
const LOW_SPACE_BYTES: u64 = 64 << 20;

/// Below this many free bytes, less dirty ones, dirty data is written out before a write is accepted: the largest usual write,
/// plus the error of the kernel's counters (assumed to be at most 1 MiB for each CPU).
const NEAR_END_BYTES: u64 = 8 << 20;

/// Upper bound of the bytes that writers dirty in a second.
const MAX_BYTES_PER_SECOND: u64 = 16 << 30;

const MIN_INTERVAL: Duration = Duration::from_millis(2);
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// Source of the free-space figures, as far as the daemon can know them.
struct FreeSpace {
    filesystem: Arc<Filesystem>,
    dirty: DirtyData,
}

impl FreeSpace {
    /// Returns the free bytes, and adapts the limit of dirty bytes to them.
    fn free(&self) -> u64 {
        let free = self.filesystem.room(ReservedAccess::Common);
        self.dirty.limit_to_share_of(free);
        free
    }

    /// Returns the free bytes less the upper bound of dirty bytes.
    fn unclaimed(&self) -> u64 {
        self.unclaimed_of(self.free())
    }

    fn unclaimed_of(&self, free: u64) -> u64 {
        if free == 0 { 0 } else { free.saturating_sub(self.dirty.upper_bound()) }
    }

    /// Reports whether [`unclaimed`](Self::unclaimed) is less. Opens and writes ask this, so the dirty pages of the machine are
    /// read only where the limit of the mount does not decide.
    fn is_below(&self, bytes: u64) -> bool {
        let free = self.free();
        free.saturating_sub(self.dirty.limit()) < bytes && self.unclaimed_of(free) < bytes
    }
}

struct State {
    free_space: FreeSpace,
    writers: Arc<Writers>,
    is_low: AtomicBool,
    /// The thread sleeps until the next open.
    rests: AtomicBool,
    /// A file was opened for writing since the last sample.
    opened: AtomicBool,
    /// Kernel caches of the session, from the first open until the end.
    caches: RwLock<Option<Caches>>,
    ends: Mutex<bool>,
    changed: Condvar,
}

/// The low-space detector: a sampling thread and its state.
pub(crate) struct LowSpace {
    state: Arc<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for LowSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LowSpace").field("is_low", &self.is_low()).finish_non_exhaustive()
    }
}

impl LowSpace {
    /// # Errors
    /// Errors of starting a thread.
    pub(crate) fn start(
        filesystem: Arc<Filesystem>,
        writers: Arc<Writers>,
        dirty: DirtyData,
    ) -> std::io::Result<Self> {
        let state = Arc::new(State {
            free_space: FreeSpace { filesystem, dirty },
            writers,
            is_low: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            opened: AtomicBool::new(false),
            caches: RwLock::default(),
            ends: Mutex::default(),
            changed: Condvar::new(),
        });
        let of_thread = state.clone();
        let thread = thread::Builder::new().name("low-space".into()).spawn(move || of_thread.run())?;
        Ok(Self { state, thread: Mutex::new(Some(thread)) })
    }

    /// Reports whether each write has to be preceded by a GETATTR.
    pub(crate) fn is_low(&self) -> bool {
        self.state.is_low.load(Ordering::Acquire)
    }

    /// Reports whether dirty data has to be written out before more is accepted.
    pub(crate) fn is_near_end(&self) -> bool {
        self.is_low() && self.state.free_space.is_below(NEAR_END_BYTES)
    }

    /// Records that a file was opened for writing.
    pub(crate) fn opened(&self, caches: impl FnOnce() -> Caches) {
        let state = &self.state;
        if state.caches.read().is_none() {
            state.caches.write().get_or_insert_with(caches);
        }
        state.opened.store(true, Ordering::SeqCst);
        if state.rests.load(Ordering::SeqCst) {
            let _ends = state.ends.lock();
            state.changed.notify_all();
        }
        if state.free_space.is_below(LOW_SPACE_BYTES) {
            state.is_low.store(true, Ordering::Release);
        }
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        *self.state.ends.lock() = true;
        self.state.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        let caches = self.state.caches.write().take();
        drop(caches);
    }
}

impl State {
    fn run(&self) {
        let mut ends = self.ends.lock();
        while !*ends {
            let active = self.opened.swap(false, Ordering::SeqCst) || !self.writers.is_empty();
            if !active {
                self.rests.store(true, Ordering::SeqCst);
                // An open in between may not have seen `rests`.
                if !self.opened.load(Ordering::SeqCst) {
                    self.changed.wait(&mut ends);
                }
                self.rests.store(false, Ordering::SeqCst);
                continue;
            }
            let unclaimed = self.free_space.unclaimed();
            self.update(unclaimed);
            self.changed.wait_for(&mut ends, interval(unclaimed));
        }
    }

    fn update(&self, unclaimed: u64) {
        if unclaimed >= 2 * LOW_SPACE_BYTES {
            self.is_low.store(false, Ordering::Release);
        } else if unclaimed < LOW_SPACE_BYTES {
            let was_low = self.is_low.swap(true, Ordering::AcqRel);
            let Some(caches) = &*self.caches.read() else { return };
            // The attributes of files whose writers also read are cached, so an invalidation that came before the reply that
            // has the kernel cache them is repeated.
            let writers = if was_low { self.writers.all_reading() } else { self.writers.all() };
            for inode in writers {
                caches.invalidate_node(crate::reply::node(inode), None);
            }
        }
    }
}

/// Returns the least time until the margin can be reached.
fn interval(unclaimed: u64) -> Duration {
    let left = unclaimed.saturating_sub(LOW_SPACE_BYTES);
    let micros = left.saturating_mul(1_000_000) / MAX_BYTES_PER_SECOND;
    Duration::from_micros(micros).clamp(MIN_INTERVAL, MAX_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_sample_comes_before_the_margin_is_reached() {
        assert_eq!(interval(0), MIN_INTERVAL);
        assert_eq!(interval(LOW_SPACE_BYTES), MIN_INTERVAL);
        assert_eq!(interval(LOW_SPACE_BYTES + (1 << 30)), Duration::from_micros(62_500));
        assert_eq!(interval(u64::MAX), MAX_INTERVAL);
    }
}
