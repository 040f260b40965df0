//! Group commit of the replica's database.
//!
//! Changes are batched for 20 ms and committed on a thread, which survives a crash of the process. `sync` makes commits
//! durable by an fsync of the WAL, shared by all concurrent callers. A second thread checkpoints the WAL.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use rustix::io::Errno;

use crate::failpoint::{Failpoint, OnDisk, on_disk, point};
use crate::replica::db::ReplicaDb;
use crate::replica::db::reap::ReapState;
use crate::replica::db::wal_reserve::{SidecarFile, WalReserve};
use crate::replica::error::{Result, errno};
use crate::replica::{Inner, Replica};

/// Maximum number of changes in one commit.
pub(crate) const MAX_BATCH_CHANGES: u32 = 1024;

/// How long a change waits for others to be committed with it.
const BATCH_TIMEOUT: Duration = Duration::from_millis(20);

/// A WAL of this size is checkpointed concurrently with the writer; above [`MAX_WAL_BYTES`] the writer waits for the
/// checkpoint.
const CHECKPOINT_WAL_BYTES: u64 = 4 << 20;
const MAX_WAL_BYTES: u64 = 256 << 20;

/// Commits that are durable.
#[derive(Default)]
struct SyncState {
    commits: u64,
    /// An fsync failed. The kernel reports that once and treats the lost pages as clean afterwards.
    has_failed: bool,
}

/// Durability of the database: the state of commits, fsync and the WAL.
pub(crate) struct Durability {
    /// Number of commits since the start.
    commits: AtomicU64,
    /// Locked during an fsync, so that waiters share its result.
    synced: Mutex<SyncState>,
    wal: SidecarFile,
    /// Uncommitted changes exist; the committer is to end.
    state: Mutex<(bool, bool)>,
    wake: Condvar,
    wal_reserve: WalReserve,
}

impl Durability {
    pub(crate) fn new(database: &Path) -> Self {
        Self {
            commits: AtomicU64::new(0),
            synced: Mutex::default(),
            wal: SidecarFile::new(database, "-wal"),
            state: Mutex::new((false, false)),
            wake: Condvar::new(),
            wal_reserve: WalReserve::new(database),
        }
    }

    /// Returns ENOSPC if the database has no space to grow, in which case an acknowledged change might fail to commit.
    pub(crate) fn has_room(&self) -> Result<(), Errno> {
        if self.wal_reserve.is_full() {
            self.wal_reserve.replenish(&self.wal);
        }
        if self.wal_reserve.is_full() { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// Wakes the committer for a change.
    pub(crate) fn notify_changed(&self) {
        let mut state = self.state.lock();
        if !state.0 {
            state.0 = true;
            self.wake.notify_one();
        }
    }

    /// Commits the transaction.
    pub(crate) fn commit(&self, db: &mut ReplicaDb) -> Result<()> {
        let done = db.commit();
        self.wal_reserve.replenish(&self.wal);
        done?;
        self.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// In bytes.
    fn wal_length(&self) -> u64 {
        self.wal.file().and_then(|log| log.metadata()).map_or(0, |log| log.len())
    }

    /// Returns once the first `commits` commits are durable.
    fn sync_to(&self, commits: u64) -> io::Result<()> {
        let mut synced = self.synced.lock();
        if synced.commits < commits {
            if synced.has_failed {
                return Err(Errno::IO.into());
            }
            let all = self.commits.load(Ordering::Acquire);
            point(Failpoint::ReplicaSync)?;
            let log = self.wal.file()?;
            if let Err(error) = log.sync_data() {
                synced.has_failed = true;
                tracing::error!(
                    "fsync of the cache database failed ({error}): changes since then are not durable; check the cache disk \
                     and mount again"
                );
                return Err(error);
            }
            on_disk(OnDisk::File(&log));
            point(Failpoint::ReplicaSynced)?;
            synced.commits = all;
        }
        Ok(())
    }

    /// Sleeps until there are changes to commit. Returns `false` at the end.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.0 && !state.1 {
            self.wake.wait(&mut state);
        }
        state.0 = false;
        !state.1
    }

    fn end(&self) {
        self.state.lock().1 = true;
        self.wake.notify_one();
    }
}

impl Replica {
    /// Commits pending changes: they survive a crash of this process from here on.
    ///
    /// # Errors
    /// ENOSPC, EIO: the changes stay pending.
    pub fn commit(&self) -> Result<(), Errno> {
        self.inner.commit().map(drop)
    }

    /// Makes all changes durable.
    ///
    /// # Errors
    /// ENOSPC, EIO.
    pub fn sync(&self) -> Result<(), Errno> {
        self.inner.sync()
    }

    /// Removes the backing files of deleted and evicted objects, at most `limit`. Returns their number.
    ///
    /// # Errors
    /// EIO.
    pub fn reap(&self, limit: u32) -> Result<usize, Errno> {
        self.inner.reap(limit)
    }
}

impl Inner {
    fn commit(&self) -> Result<u64, Errno> {
        let mut db = self.db.lock();
        self.shared.commit(&mut db).map_err(|fail| fail.errno)?;
        if std::mem::take(&mut db.has_pending_unlinks) {
            self.shared.backing_pool.notify_removed();
        }
        Ok(self.shared.durability.commits.load(Ordering::Acquire))
    }

    pub(crate) fn sync(&self) -> Result<(), Errno> {
        let commits = self.commit()?;
        let synced = self.shared.durability.sync_to(commits);
        synced.map_err(errno)
    }

    pub(crate) fn reap(&self, limit: u32) -> Result<usize, Errno> {
        let unlinked: Vec<i64> = {
            let db = self.db.lock();
            let query = || -> rusqlite::Result<_> {
                let mut query = db.db.prepare_cached("SELECT num FROM doomed LIMIT ?1")?;
                query.query_map([limit], |row| row.get(0))?.collect()
            };
            query().map_err(|error| crate::replica::OpError::from(error).errno)?
        };
        if unlinked.is_empty() {
            return Ok(0);
        }
        // Only once it is durable that nothing references them.
        self.sync()?;
        let remove = |num: i64| {
            if let Err(error) = self.shared.files.remove(num as u64) {
                tracing::warn!("cannot remove the contents of object {num}: {error}");
            }
        };
        point(Failpoint::ReapBegun)?;
        // An object that still exists may be cached again at any time: only the lock prevents that.
        let (unknown, done) = self.change(|db, _| {
            db.begin()?;
            let (mut unknown, mut done) = (Vec::new(), 0);
            for &num in &unlinked {
                match db.reap_state(num as u64)? {
                    ReapState::Unknown => {
                        unknown.push(num);
                        continue;
                    }
                    ReapState::Absent => remove(num),
                    ReapState::Cached => {}
                    ReapState::Open => {
                        db.has_pending_unlinks = true;
                        continue;
                    }
                }
                db.db.prepare_cached("DELETE FROM doomed WHERE num = ?1")?.execute([num])?;
                done += 1;
            }
            Ok((unknown, done))
        })?;
        unknown.iter().for_each(|num| remove(*num));
        point(Failpoint::ReapRemoved)?;
        self.change(|db, _| {
            db.begin()?;
            let mut delete = db.db.prepare_cached("DELETE FROM doomed WHERE num = ?1")?;
            for num in &unknown {
                delete.execute([num])?;
            }
            Ok(unknown.len() + done)
        })
    }
}

/// The committer thread, and the thread that checkpoints the WAL so that commits do not wait for the disk.
pub(crate) struct Committer {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

impl Committer {
    pub(crate) fn start(inner: Arc<Inner>, database: &Path) -> io::Result<Self> {
        let checkpointer = Connection::open(database).and_then(|db| {
            db.pragma_update(None, "synchronous", "NORMAL")?;
            Ok(db)
        });
        let checkpointer = checkpointer.map_err(io::Error::other)?;
        let durable = &inner.shared.durability;
        durable.wal_reserve.enable(&durable.wal);
        let (wal_is_long, long_wal) = mpsc::sync_channel(1);
        let (one, other) = (inner.clone(), inner.clone());
        let mut committer = Self { inner, threads: Vec::new() };
        let name = |name: &str| std::thread::Builder::new().name(name.into());
        let shortens = move || long_wal.iter().for_each(|()| checkpoint_wal(&other, &checkpointer));
        committer.threads.push(name("replica-log").spawn(shortens)?);
        // Started last: the other thread ends when this one drops the sender.
        committer.threads.push(name("replica").spawn(move || run(&one, &wal_is_long))?);
        Ok(committer)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.inner.shared.durability.end();
        for thread in self.threads.drain(..).rev() {
            thread.join().ok();
        }
        if let Err(errno) = self.inner.sync() {
            tracing::error!("cannot commit the last changes to the cache database: {errno}");
        }
    }
}

fn run(inner: &Inner, wal_is_long: &SyncSender<()>) {
    while inner.shared.durability.wait() {
        std::thread::sleep(BATCH_TIMEOUT);
        if inner.commit().is_err() {
            // The disk is full, possibly only for a while.
            std::thread::sleep(Duration::from_secs(1));
            inner.shared.durability.notify_changed();
            continue;
        }
        if let Some(watcher) = &*inner.shared.watcher.read() {
            watcher();
        }
        if inner.shared.durability.wal_length() >= CHECKPOINT_WAL_BYTES {
            // During a checkpoint the length is checked again after the next commit.
            wal_is_long.try_send(()).ok();
        }
    }
    while matches!(inner.reap(4096), Ok(1..)) {}
}

fn checkpoint_wal(inner: &Inner, checkpointer: &Connection) {
    let length = inner.shared.durability.wal_length();
    if length < CHECKPOINT_WAL_BYTES {
        return;
    }
    let checkpoint =
        |how: &str| checkpointer.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |_| Ok(()));
    let done = match length < MAX_WAL_BYTES {
        true => checkpoint("PASSIVE"),
        false => {
            let mut db = inner.db.lock();
            match inner.shared.commit(&mut db) {
                Ok(()) => checkpoint("TRUNCATE"),
                Err(_) => return,
            }
        }
    };
    if let Err(error) = done {
        tracing::warn!("cannot checkpoint the write-ahead log of the cache database: {error}");
    }
}

#[cfg(test)]
#[path = "group_commit_tests.rs"]
mod tests;
