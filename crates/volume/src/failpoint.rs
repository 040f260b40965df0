//! Points at which a test has this crate fail, or the process end: one at every step after which something lasts.
//!
//! There with debug assertions or the feature `fail`; otherwise a point is nothing. Whoever tests in a process
//! [`arm`]s a point; from when it is reached, that point and all others fail, as if the process was not there any more,
//! until somebody [`disarm`]s. A process that was started with `SHUNT_FAIL=NAME:N` is killed by itself when it reaches a
//! point for the `N`th time.

use rustix::io::Errno;

macro_rules! points {
    ($($(#[$doc:meta])* $point:ident = $name:literal,)*) => {
        /// Where something can fail.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Failpoint { $($(#[$doc])* $point,)* }

        impl Failpoint {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$point,)*];

            /// What it is called in `SHUNT_FAIL`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$point => $name,)* }
            }
        }
    };
}

points! {
    /// A replica's transaction is complete, and not committed.
    ReplicaCommit = "replica.commit",
    /// It is committed; who asked for it does not know.
    ReplicaCommitted = "replica.committed",
    /// Commits are not on the disk.
    ReplicaSync = "replica.sync",
    /// They are; who asked for it does not know.
    ReplicaSynced = "replica.synced",
    /// A new file has its backing file, and no row.
    ReplicaMade = "replica.made",
    /// A file is noted as changed, and nobody has it open.
    ReplicaOpened = "replica.opened",
    /// That lasts, and the file is not emptied.
    ReplicaEmptied = "replica.emptied",
    /// What was written is not noted.
    ReplicaClosed = "replica.closed",
    /// A backing file is on the disk, and what is known of it perhaps not.
    ReplicaFileSynced = "replica.file-synced",
    /// What users changed is committed, and what synchronisation changes is not begun.
    ReplicaApply = "replica.apply",
    /// A replica that was opened is put right, and backing files of nothing are still there.
    ReplicaRecovered = "replica.recovered",
    /// Contents are in a backing file, and it is not noted.
    FetchBrought = "fetch.brought",
    /// Contents that came are on the disk, and it is not noted.
    FetchSure = "fetch.sure",
    /// Files are noted as not here any more, and it is not committed.
    EvictNoted = "evict.noted",
    /// It lasts that objects are gone, and their backing files are not.
    ReapBegun = "reap.begun",
    /// They are gone too, and it is not noted.
    ReapRemoved = "reap.removed",
    /// Changes are found, and their contents not sent.
    SendBegun = "send.begun",
    /// A pack is full, and not in the store.
    PackClosed = "pack.closed",
    /// It is stored, and not on the store's disk: of a directory.
    PackStored = "pack.stored",
    /// It is in the store, and nobody speaks of it.
    PackLanded = "pack.landed",
    /// All contents are in the store.
    SendDone = "send.done",
    /// Commits on their way are kept, and not sent.
    OutboxKept = "outbox.kept",
    /// The store's transaction is complete, and not committed.
    StoreCommit = "store.commit",
    /// It is committed, and not answered.
    StoreCommitted = "store.committed",
    /// The store has answered, and it is not noted.
    OutboxAnswered = "outbox.answered",
    /// Commits of the store are read, and not applied.
    LogRead = "log.read",
    /// They are, and what was on its way is still kept.
    LogApplied = "log.applied",
    /// The whole tree of the store is read, and not applied.
    TreeRead = "tree.read",
    /// It is, and what was on its way is still kept.
    TreeApplied = "tree.applied",
    /// The log of a store is shortened, and its past is not.
    GcForgot = "gc.forgot",
    /// Old versions are forgotten, and their chunks are known.
    GcTrimmed = "gc.trimmed",
    /// Chunks were looked at.
    GcCondemned = "gc.condemned",
    /// Chunks are dropped, and their packs are there.
    GcDropped = "gc.dropped",
    /// A pack is removed.
    GcRemoved = "gc.removed",
    /// Packs are noted as to be rewritten, with those to come.
    GcNoted = "gc.noted",
    /// One that comes in their place is in the store, and nobody speaks of it.
    GcRepacked = "gc.repacked",
    /// Chunks are moved into it.
    GcMoved = "gc.moved",
    /// It is noted since when nothing is in the others.
    GcEmptied = "gc.emptied",
}

/// What an engine is told of when a file is on the disk.
#[derive(Debug)]
pub enum OnDisk<'a> {
    /// One file.
    File(&'a std::fs::File),
    /// All of the file system of this directory.
    All(&'a std::fs::File),
}

/// EIO where this is the point at which to fail, or some other was.
#[inline(always)]
#[cfg(not(any(debug_assertions, feature = "fail")))]
#[expect(clippy::unnecessary_wraps, reason = "it fails in tests")]
pub(crate) fn point(_point: Failpoint) -> Result<(), Errno> {
    Ok(())
}

/// Something was written out.
#[inline(always)]
#[cfg(not(any(debug_assertions, feature = "fail")))]
pub(crate) fn on_disk(_what: OnDisk<'_>) {}

#[cfg(any(debug_assertions, feature = "fail"))]
pub use armed::{arm, disarm, has_failed, observe};
#[cfg(any(debug_assertions, feature = "fail"))]
pub(crate) use armed::{on_disk, point};

#[cfg(any(debug_assertions, feature = "fail"))]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use parking_lot::RwLock;

    use super::{Errno, Failpoint, OnDisk};

    /// The point, and how often it is still to be passed.
    static ARMED: RwLock<Option<Failpoint>> = RwLock::new(None);
    static LEFT: AtomicU32 = AtomicU32::new(0);
    static FAILED: AtomicBool = AtomicBool::new(false);
    static KILLS: OnceLock<Option<(Failpoint, AtomicU32)>> = OnceLock::new();
    type Observer = Box<dyn Fn(OnDisk<'_>) + Send + Sync>;
    static OBSERVER: RwLock<Option<Observer>> = RwLock::new(None);

    /// Has this process fail at a point when it is reached for the `nth` time, from 1 on.
    pub fn arm(point: Failpoint, nth: u32) {
        disarm();
        LEFT.store(nth.saturating_sub(1), Ordering::Relaxed);
        *ARMED.write() = Some(point);
    }

    /// Nothing fails from now on. Whether something did.
    pub fn disarm() -> bool {
        *ARMED.write() = None;
        FAILED.swap(false, Ordering::Relaxed)
    }

    /// Whether something failed since the last [`disarm`].
    pub fn has_failed() -> bool {
        FAILED.load(Ordering::Relaxed)
    }

    /// Who hears of what is on the disk.
    pub fn observe(observer: Option<Observer>) {
        *OBSERVER.write() = observer;
    }

    pub(crate) fn point(point: Failpoint) -> Result<(), Errno> {
        if let Some((kills, left)) = KILLS.get_or_init(told)
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

    pub(crate) fn on_disk(what: OnDisk<'_>) {
        if let Some(observer) = &*OBSERVER.read() {
            observer(what);
        }
    }

    fn told() -> Option<(Failpoint, AtomicU32)> {
        let told = std::env::var("SHUNT_FAIL").ok()?;
        let (name, nth) = told.split_once(':').unwrap_or((&told, "1"));
        let point = Failpoint::ALL.iter().find(|point| point.name() == name)?;
        Some((*point, AtomicU32::new(nth.parse().ok()?)))
    }
}
