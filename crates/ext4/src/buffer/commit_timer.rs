//! Periodic commit, as by kjournald2: commits transactions by age, and after a burst of write-back.
//!
//! `sync(2)` and `syncfs(2)` have the kernel write dirty pages back, but most mounts are not notified of their end. A transaction
//! is therefore committed once no page has been written back for [`WRITEBACK_IDLE_INTERVAL`]: the data is durable soon after such
//! a call returns, rather than at the age of [`COMMIT_INTERVAL`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::MetadataCache;

/// Default age at which a transaction is committed.
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// Time without write-back that ends a burst.
const WRITEBACK_IDLE_INTERVAL: Duration = Duration::from_millis(20);

/// Minimum time between commits caused by bursts: a program that closes many small files with pauses must not cause one each.
const MIN_COMMIT_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Signals {
    /// Age in milliseconds at which a transaction is committed.
    age: AtomicU64,
    stop: AtomicBool,
    /// Set if pages were written back since the last commit that a burst caused.
    burst: AtomicBool,
    /// Total number of write-back calls.
    writes: AtomicU64,
}

/// The commit thread; stops when this is dropped.
pub(crate) struct CommitTimer {
    signals: Arc<Signals>,
    thread: Option<JoinHandle<()>>,
}

impl CommitTimer {
    pub(crate) fn start(store: &Arc<MetadataCache>) -> std::io::Result<Self> {
        let signals = Arc::new(Signals {
            age: AtomicU64::new(COMMIT_INTERVAL.as_millis() as u64),
            stop: AtomicBool::new(false),
            burst: AtomicBool::new(false),
            writes: AtomicU64::new(0),
        });
        let (store, seen) = (Arc::downgrade(store), signals.clone());
        let thread = thread::Builder::new().name("ext4-commit".into()).spawn(move || run(&store, &seen))?;
        Ok(Self { signals, thread: Some(thread) })
    }

    /// Sets the age at which transactions are committed.
    pub(crate) fn commit_at(&self, age: Duration) {
        self.signals.age.store(u64::try_from(age.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.wake();
    }

    /// Records that a page was written back.
    pub(crate) fn wrote_back(&self) {
        self.signals.writes.fetch_add(1, Ordering::Relaxed);
        if !self.signals.burst.load(Ordering::Acquire) && !self.signals.burst.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for CommitTimer {
    fn drop(&mut self) {
        self.signals.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn run(store: &Weak<MetadataCache>, signals: &Signals) {
    let mut seen = 0;
    let mut left = COMMIT_INTERVAL;
    let mut last: Option<Instant> = None;
    loop {
        let bursting = signals.burst.load(Ordering::Acquire);
        let apart = last.map_or(Duration::ZERO, |last| MIN_COMMIT_INTERVAL.saturating_sub(last.elapsed()));
        thread::park_timeout(if bursting { WRITEBACK_IDLE_INTERVAL.max(apart).min(left) } else { left });
        let Some(store) = store.upgrade() else { return };
        if signals.stop.load(Ordering::Acquire) || !store.is_writable() {
            return;
        }
        let writes = signals.writes.load(Ordering::Relaxed);
        let ended =
            bursting && writes == seen && last.is_none_or(|last| last.elapsed() >= MIN_COMMIT_INTERVAL);
        seen = writes;
        let due = Duration::from_millis(signals.age.load(Ordering::Relaxed));
        left = store.age().map_or(due, |age| due.saturating_sub(age));
        if ended {
            // Write-back from here on belongs to the next burst.
            signals.burst.store(false, Ordering::Release);
            last = Some(Instant::now());
        }
        if ended || left.is_zero() {
            // Errors abort the journal and are logged there.
            store.sync().ok();
            left = due;
        }
    }
}
