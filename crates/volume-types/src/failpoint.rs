//! Failpoints: points at which a test makes this crate fail, or kills the process; one after every step that makes something
//! durable.
//!
//! They are compiled in with debug assertions or the feature `fail`; otherwise a point does nothing. A test in the process
//! [`arm`]s a point; once it is reached, that point and all others fail, as if the process had ended, until the test
//! [`disarm`]s it. A process started with `SHUNT_FAIL=NAME:N` kills itself when it reaches a point for the `N`th time.

use rustix::io::Errno;

macro_rules! points {
    ($($(#[$doc:meta])* $point:ident = $name:literal,)*) => {
        /// A failpoint.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Failpoint { $($(#[$doc])* $point,)* }

        impl Failpoint {
            /// All failpoints.
            pub const ALL: &[Self] = &[$(Self::$point,)*];

            /// Returns the name in `SHUNT_FAIL`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$point => $name,)* }
            }
        }
    };
}

points! {
    /// A replica's transaction is complete, and not committed.
    ReplicaCommit = "replica.commit",
    /// The transaction is committed; the caller has no result yet.
    ReplicaCommitted = "replica.committed",
    /// Commits have not been fsynced.
    ReplicaSync = "replica.sync",
    /// The changes are durable; the caller has no result yet.
    ReplicaSynced = "replica.synced",
    /// A new file has its backing file, and no row.
    ReplicaMade = "replica.made",
    /// A file is recorded as changed, and not open yet.
    ReplicaOpened = "replica.opened",
    /// That record is durable, and the file is not truncated yet.
    ReplicaEmptied = "replica.emptied",
    /// A write to a file is not recorded yet.
    ReplicaClosed = "replica.closed",
    /// A backing file is durable, and its record may not be.
    ReplicaFileSynced = "replica.file-synced",
    /// Users' changes are committed, and those of synchronisation are not begun.
    ReplicaApply = "replica.apply",
    /// A replica was recovered on opening, and orphaned backing files still exist.
    ReplicaRecovered = "replica.recovered",
    /// Contents are in a backing file, and not recorded.
    FetchWritten = "fetch.brought",
    /// Fetched contents were fsynced, and that is not recorded.
    FetchSynced = "fetch.sure",
    /// Files are recorded as evicted, and that is not committed.
    EvictRecorded = "evict.noted",
    /// The removal of objects is durable, and their backing files still exist.
    ReapBegun = "reap.begun",
    /// The backing files are removed, and that is not recorded.
    ReapRemoved = "reap.removed",
    /// Changes are found, and their contents are not uploaded.
    SendBegun = "send.begun",
    /// A pack is full, and not uploaded.
    PackClosed = "pack.closed",
    /// A pack is stored in a directory, and not fsynced.
    PackStored = "pack.stored",
    /// A pack is stored, and not referenced.
    PackLanded = "pack.landed",
    /// All contents are uploaded.
    SendDone = "send.done",
    /// Commits are in the outbox, and not sent.
    OutboxKept = "outbox.kept",
    /// The store's transaction is complete, and not committed.
    StoreCommit = "store.commit",
    /// It is committed, and not answered.
    StoreCommitted = "store.committed",
    /// The store has answered, and that is not recorded.
    OutboxAnswered = "outbox.answered",
    /// Log entries are read, and not applied.
    LogRead = "log.read",
    /// They are applied, and the outbox is not cleared.
    LogApplied = "log.applied",
    /// The whole tree of the store is read, and not applied.
    TreeRead = "tree.read",
    /// It is applied, and the outbox is not cleared.
    TreeApplied = "tree.applied",
    /// The log of a store is truncated, and its history is not.
    GcForgot = "gc.forgot",
    /// Old versions are deleted, and their chunks still exist.
    GcTrimmed = "gc.trimmed",
    /// Chunks have been marked or unmarked.
    GcMarked = "gc.condemned",
    /// Chunks are deleted from the metadata, and their packs still exist.
    GcDropped = "gc.dropped",
    /// A pack is deleted.
    GcRemoved = "gc.removed",
    /// Packs to be compacted, and the new ones, are recorded.
    GcNoted = "gc.noted",
    /// A new pack is stored, and not referenced.
    GcRepacked = "gc.repacked",
    /// The locations of chunks are updated to the new pack.
    GcMoved = "gc.moved",
    /// The old packs are recorded as empty.
    GcEmptied = "gc.emptied",
}

/// An fsync that is reported to an observer.
#[derive(Debug)]
pub enum OnDisk<'a> {
    /// Of one file.
    File(&'a std::fs::File),
    /// Of the whole file system of this directory.
    All(&'a std::fs::File),
}

/// Returns EIO if this failpoint is armed and due, or if one has failed before.
#[inline(always)]
#[cfg(not(any(debug_assertions, feature = "fail")))]
#[expect(clippy::unnecessary_wraps, reason = "it fails in tests")]
pub fn point(_point: Failpoint) -> Result<(), Errno> {
    Ok(())
}

/// Reports an fsync to the observer.
#[inline(always)]
#[cfg(not(any(debug_assertions, feature = "fail")))]
pub fn on_disk(_what: OnDisk<'_>) {}

#[cfg(any(debug_assertions, feature = "fail"))]
pub use armed::{arm, disarm, has_failed, observe};
#[cfg(any(debug_assertions, feature = "fail"))]
pub use armed::{on_disk, point};

#[cfg(any(debug_assertions, feature = "fail"))]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use parking_lot::RwLock;

    use super::{Errno, Failpoint, OnDisk};

    /// The armed point, and below the number of times it may still be passed.
    static ARMED: RwLock<Option<Failpoint>> = RwLock::new(None);
    static LEFT: AtomicU32 = AtomicU32::new(0);
    static FAILED: AtomicBool = AtomicBool::new(false);
    static KILLS: OnceLock<Option<(Failpoint, AtomicU32)>> = OnceLock::new();
    type Observer = Box<dyn Fn(OnDisk<'_>) + Send + Sync>;
    static OBSERVER: RwLock<Option<Observer>> = RwLock::new(None);

    /// Makes this process fail at a point when it is reached for the `nth` time, from 1 on.
    pub fn arm(point: Failpoint, nth: u32) {
        disarm();
        LEFT.store(nth.saturating_sub(1), Ordering::Relaxed);
        *ARMED.write() = Some(point);
    }

    /// Disarms; returns whether a point has failed.
    pub fn disarm() -> bool {
        *ARMED.write() = None;
        FAILED.swap(false, Ordering::Relaxed)
    }

    /// Reports whether a point has failed since the last [`disarm`].
    pub fn has_failed() -> bool {
        FAILED.load(Ordering::Relaxed)
    }

    /// Sets the observer of fsyncs.
    pub fn observe(observer: Option<Observer>) {
        *OBSERVER.write() = observer;
    }

    pub fn point(point: Failpoint) -> Result<(), Errno> {
        if let Some((kills, left)) = KILLS.get_or_init(failpoint_of_environment)
            && *kills == point
            && left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).ok();
        }
        let last = |left: u32| left.checked_sub(1);
        if *ARMED.read() == Some(point)
            && LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, last).is_err()
        {
            FAILED.store(true, Ordering::Relaxed);
        }
        if FAILED.load(Ordering::Relaxed) { Err(Errno::IO) } else { Ok(()) }
    }

    pub fn on_disk(what: OnDisk<'_>) {
        if let Some(observer) = &*OBSERVER.read() {
            observer(what);
        }
    }

    fn failpoint_of_environment() -> Option<(Failpoint, AtomicU32)> {
        let variable = std::env::var("SHUNT_FAIL").ok()?;
        let (name, nth) = variable.split_once(':').unwrap_or((&variable, "1"));
        let point = Failpoint::ALL.iter().find(|point| point.name() == name)?;
        Some((*point, AtomicU32::new(nth.parse().ok()?)))
    }
}
