//! Low-space mode: near the end of space each write is preceded by a GETATTR to the daemon, which has dirty data written out
//! first.
//!
//! With the write-back cache the kernel accepts data before the file system has blocks for it, up to a fifth of the memory, and
//! only the kernel knows how much. So a thread compares the free space with all dirty pages of the machine (`Dirty` and
//! `Writeback` of `/proc/meminfo`, an upper bound of those of this mount), as often as the fastest writer could use up the
//! difference. Where the difference falls below [`MARGIN`], the cached attributes of files that are open for writing are
//! invalidated, and later ones are not cached beyond one request. The kernel then sends a GETATTR before each `write(2)`, whose
//! handler has the kernel write out dirty data. A writer thus gets ENOSPC at most one `write(2)` late.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use shunt_ext4::{Filesystem, ReservedAccess};
use shunt_fuse::Caches;

use crate::writers::Writers;

/// Below this many free bytes, less dirty ones, each write is preceded by a GETATTR.
const MARGIN: u64 = 64 << 20;

/// Below this many free bytes, less dirty ones, dirty data is written out before a write is accepted: the largest usual write,
/// plus the error of the kernel's counters (at most 1 MiB for each CPU here).
const NEAR_END: u64 = 8 << 20;

/// Upper bound of the bytes that writers dirty in a second.
const FASTEST: u64 = 16 << 30;

const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// Meter of the machine's dirty data. It keeps `/proc/meminfo` open because a sandboxed daemon cannot open it any more. Without
/// that file dirty data counts as zero.
#[derive(Debug)]
pub struct DirtyData(Option<File>);

impl DirtyData {
    /// Opens `/proc/meminfo`.
    pub fn open() -> Self {
        Self(File::open("/proc/meminfo").ok())
    }

    /// Returns the dirty bytes.
    fn amount(&self) -> u64 {
        let mut text = [0; 4096];
        let length = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        dirty_of(&text[..length])
    }
}

/// Source of the free-space figures, as far as the daemon can know them.
struct Supply {
    filesystem: Arc<Filesystem>,
    dirty: DirtyData,
}

impl Supply {
    fn free(&self) -> u64 {
        self.filesystem.room(ReservedAccess::Common)
    }

    /// Returns the free bytes less all dirty bytes.
    fn unclaimed(&self) -> u64 {
        let free = self.free();
        if free == 0 { 0 } else { free.saturating_sub(self.dirty.amount()) }
    }
}

/// Returns the bytes that `/proc/meminfo` counts as dirty or under write-back.
fn dirty_of(memory: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(memory);
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let kib: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
        ["Dirty", "Writeback"].contains(&name).then(|| kib.saturating_mul(1024))
    };
    text.lines().filter_map(value).fold(0, u64::saturating_add)
}

struct State {
    supply: Supply,
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
            supply: Supply { filesystem, dirty },
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
        self.is_low() && self.state.supply.unclaimed() < NEAR_END
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
        if !self.is_low() && state.supply.free() <= MARGIN {
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
            let unclaimed = self.supply.unclaimed();
            self.judge(unclaimed);
            self.changed.wait_for(&mut ends, pause(unclaimed));
        }
    }

    fn judge(&self, unclaimed: u64) {
        if unclaimed >= 2 * MARGIN {
            self.is_low.store(false, Ordering::Release);
        } else if unclaimed < MARGIN
            && !self.is_low.swap(true, Ordering::AcqRel)
            && let Some(caches) = &*self.caches.read()
        {
            for inode in self.writers.all() {
                caches.invalidate_node(crate::reply::node(inode), None);
            }
        }
    }
}

/// Returns the least time until the margin can be reached.
fn pause(unclaimed: u64) -> Duration {
    let left = unclaimed.saturating_sub(MARGIN);
    let micros = left.saturating_mul(1_000_000) / FASTEST;
    Duration::from_micros(micros).clamp(SHORTEST_PAUSE, MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_memory_is_read() {
        let memory =
            b"MemTotal:       24649344 kB\nDirty:              1024 kB\nWriteback:            16 kB\n\
            WritebackTmp:         7 kB\nHugePages_Total:       0\n";
        assert_eq!(dirty_of(memory), 1040 << 10);
        assert_eq!(dirty_of(b""), 0);
        assert_eq!(dirty_of(b"Dirty: 99999999999999999999 kB\nDirty:\nWriteback: -1 kB\n"), 0);
    }

    #[test]
    fn looks_come_before_the_margin_is_reached() {
        assert_eq!(pause(0), SHORTEST_PAUSE);
        assert_eq!(pause(MARGIN), SHORTEST_PAUSE);
        assert_eq!(pause(MARGIN + (1 << 30)), Duration::from_micros(62_500));
        assert_eq!(pause(u64::MAX), MAX_BACKOFF);
    }
}
