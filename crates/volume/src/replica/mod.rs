//! The local replica of a volume on one node.
//!
//! A [`Replica`] is a database with all the metadata of a volume, and a directory of backing files with the cached contents.
//! Reads and changes work without the network: each change also records the base version, the last state agreed with the
//! store, and synchronisation sends the change later.
//!
//! A change is durable from the next `sync` on. Without one it is committed within 20 ms, which survives a crash of the
//! process but not of the machine. A replica that was killed at any point is consistent when it is opened again.

mod cache;
mod data;
mod db;
mod error;
mod namespace;
mod recover;
mod succession;
mod sync_adapter;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use rusqlite::Connection;
use rustix::io::Errno;

pub use cache::cache_manager::{CacheManager, CacheMode, CachePolicy};
pub use cache::cache_stats::{CacheCounts, CacheStats};
pub use data::fetch::{Fetcher, WholeFile};
pub use data::open_file::Opened;
pub use data::store_fetcher::StoreFetcher;
pub use db::basis_cache::BasisFile;
pub use db::inode::{CacheState, Dirty, Inode, ROOT};
pub use db::redo::{RedoFormatError, RedoLog, RedoMemory};
pub use db::usage_counts::Quota;
pub use error::ReplicaError;
pub use namespace::dentries::{DirEntry, NewObject, Rename};
pub use namespace::setattr::SetAttr;
pub use succession::RequestId;
pub use sync_adapter::SyncAdapter;
pub use sync_adapter::apply_transaction::{Applying, LocalObject};
pub use sync_adapter::conflicts::{ConflictInfo, Version};
pub use sync_adapter::local_changes::{LocalChange, PendingLink, PendingObject};

use self::db::ReplicaDb;
use data::backing::BackingDir;
use data::backing_pool::{BackingFilePool, PoolWorker};
use data::fetch::InflightFetches;
use db::group_commit::{Committer, Durability};
use error::{OpError, Result};
use namespace::lookup_count::LookupCounts;
use sync_adapter::foreground::ForegroundLoad;

use crate::id::{NodeName, Seq};
use crate::object::Time;

/// Receives invalidations for changes applied by synchronisation: the caches in front of a replica.
///
/// The calls are made before a caller can see the change, with the replica locked: they must not block or call back.
pub trait KernelCache: Send + Sync {
    /// Invalidates the attributes of an object.
    fn object_changed(&self, num: u64);
    /// Invalidates one name of a directory, and the directory's listing and attributes. `was_directory`: the name referred to
    /// a directory, which a process may have as its working directory.
    fn link_changed(&self, parent: u64, name: &[u8], was_directory: bool);
    /// Invalidates the data and attributes of a file.
    fn content_changed(&self, num: u64);

    /// Invalidates all names. When the future is ready, no name cached before this call is used any more.
    fn names_stale(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Completes once all invalidations issued before the call have taken effect.
    fn settled(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The clock of a replica.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// Callback that is notified of commits.
pub type Watcher = Box<dyn Fn() + Send + Sync>;

/// Options for opening a replica.
#[derive(Clone)]
pub struct Options {
    /// The unique identifier of the volume.
    pub volume: String,
    /// The name of this node.
    pub node: NodeName,
    /// Starts the background threads, one of which commits. Without them only [`Replica::commit`] and [`Replica::sync`] make
    /// changes durable.
    pub background: bool,
    /// The source of the current time.
    pub clock: Clock,
    /// The upper half of new object ids; random if `None`. No two sessions of any node may use the same value.
    pub ids: Option<u64>,
    /// The user and group that own a new volume's root directory until the store provides its attributes.
    pub owner: (u32, u32),
    /// Log of acknowledged changes that are not committed yet, for a process that continues after this one was killed.
    pub redo: Option<Arc<RedoLog>>,
    /// The [lock](Replica::lock) of the last process, if its mount still exists: objects without a name stay, and nothing is evicted
    /// before [`finish_adoption`](Replica::finish_adoption).
    pub inherited_lock: Option<Arc<OwnedFd>>,
}

impl Options {
    /// Returns the defaults of a node: background threads, the system clock, random ids, root as the owner.
    pub fn new(volume: impl Into<String>, node: NodeName) -> Self {
        Self {
            volume: volume.into(),
            node,
            background: true,
            clock: Arc::new(db::now),
            ids: None,
            owner: (0, 0),
            redo: None,
            inherited_lock: None,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("volume", &self.volume)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// The local replica of a volume: a tree that is read and changed without a network.
///
/// ```
/// use std::os::unix::fs::FileExt;
///
/// use shunt_volume::id::OwnerId;
/// use shunt_volume::object::Kind;
/// use shunt_volume::replica::{NewObject, Options, ROOT, Replica};
///
/// let directory = tempfile::tempdir()?;
/// let replica = Replica::open(directory.path(), Options::new("notes", "laptop".parse()?))?;
///
/// let new = NewObject { kind: Kind::Regular, mode: 0o644, owner: OwnerId(1000), group: OwnerId(1000), target: b"" };
/// let file = replica.make(ROOT, b"list", new)?;
/// let opened = replica.open_file(file.ino, true, false)?;
/// opened.file.write_all_at(b"milk", 0)?;
/// replica.release_open(file.ino, true, opened.session);
/// replica.sync()?;
///
/// assert_eq!(replica.lookup(ROOT, b"list")?.size, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Replica {
    inner: Arc<Inner>,
    _pool_worker: Option<PoolWorker>,
    /// Dropped before the database.
    _workers: Option<data::prefetch::Workers>,
    _committer: Option<Committer>,
}

/// State shared with the background threads.
pub(crate) struct Inner {
    db: Mutex<ReplicaDb>,
    shared: Shared,
    foreground: ForegroundLoad,
}

/// State outside the database lock.
pub(crate) struct Shared {
    files: BackingDir,
    backing_pool: BackingFilePool,
    lookup_counts: LookupCounts,
    clock: Clock,
    durability: Durability,
    fetching: InflightFetches,
    prefetcher: data::prefetch::Prefetcher,
    offline_misses: cache::offline_misses::OfflineMisses,
    cache_counters: cache::cache_stats::CacheCounters,
    /// Notified when the set of cached files may have changed.
    cache_changed: cache::eviction::Notify,
    /// Set while quota limits exist.
    limited: Arc<AtomicBool>,
    fetcher: RwLock<Option<Arc<dyn Fetcher>>>,
    kernel_cache: OnceLock<Arc<dyn KernelCache>>,
    applied: AtomicU64,
    rollbacks: AtomicU64,
    watcher: RwLock<Option<Watcher>>,
    node: NodeName,
    volume: String,
    directory: PathBuf,
    /// Results of requests that earlier processes executed.
    inherited_results: std::collections::HashMap<u64, u64>,
    /// Directory lock, held as long as the replica is open.
    lock: std::fs::File,
}

impl Shared {
    fn now(&self) -> Time {
        (self.clock)()
    }

    /// Commits the transaction. On failure, invalidates the caches if the database rolled back.
    fn commit(&self, db: &mut ReplicaDb) -> Result<()> {
        let done = self.durability.commit(db);
        if done.is_err() {
            self.invalidate_rolled_back(db);
        }
        done
    }

    /// After a rollback, invalidates every name and the contents of all referenced inodes: replies may have shown lost
    /// changes.
    fn invalidate_rolled_back(&self, db: &mut ReplicaDb) {
        if !db.take_rolled_back() {
            return;
        }
        self.rollbacks.fetch_add(1, Ordering::Relaxed);
        let Some(caches) = self.kernel_cache.get() else { return };
        drop(caches.names_stale());
        self.known_inodes(db).into_iter().chain([ROOT]).for_each(|num| caches.content_changed(num));
    }

    /// Returns the inodes that the kernel may know, besides the root.
    fn known_inodes(&self, db: &ReplicaDb) -> Vec<u64> {
        match self.lookup_counts.is_inherited() {
            true => db.all_numbers().unwrap_or_else(|_| self.lookup_counts.all()),
            false => self.lookup_counts.all(),
        }
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replica").field("node", &self.inner.shared.node).finish_non_exhaustive()
    }
}

impl Replica {
    /// Opens the replica in a directory, or creates one there, and recovers from a crash.
    ///
    /// # Errors
    /// Returns [`ReplicaError`] if the directory or its database cannot be used.
    pub fn open(directory: &Path, options: Options) -> Result<Self, ReplicaError> {
        let lock = match &options.inherited_lock {
            // A thread of the last process may hold the lock for another moment, through the same open file.
            Some(lock) => lock.try_clone().map_err(|error| data::backing::unusable(directory, error))?.into(),
            None => data::backing::lock(directory)?,
        };
        let path = directory.join("replica.db");
        let db = Connection::open(&path)?;
        db::schema::prepare(&db)?;
        let is_new = db::schema::create(&db)?;
        let inherited_results = options.redo.as_ref().map(|redo| redo.replay(&db)).transpose()?;
        let first_id = u128::from(options.ids.unwrap_or_else(rand::random)) << 64;
        let mut db = ReplicaDb::new(db, first_id)?;
        let files = BackingDir::open(directory)?;
        recover::recover(&mut db, &files, &options, is_new)?;
        if let Some(redo) = &options.redo {
            db.enable_redo(redo.clone());
        }
        db.adopts_opens = options.inherited_lock.is_some();
        db.conflicts = db::conflict_dirs::directories(&db)
            .map_err(|fail| data::backing::unusable("conflicts".as_ref(), fail.errno.into()))?;
        let durable = Durability::new(&path);
        let shared = Shared {
            files,
            backing_pool: BackingFilePool::default(),
            lookup_counts: LookupCounts::new(options.inherited_lock.is_some()),
            clock: options.clock,
            durability: durable,
            fetching: InflightFetches::default(),
            prefetcher: data::prefetch::Prefetcher::default(),
            offline_misses: cache::offline_misses::OfflineMisses::default(),
            cache_counters: cache::cache_stats::CacheCounters::default(),
            cache_changed: cache::eviction::Notify::default(),
            limited: db.usage.flag(),
            fetcher: RwLock::new(None),
            kernel_cache: OnceLock::new(),
            applied: AtomicU64::new(0),
            rollbacks: AtomicU64::new(0),
            watcher: RwLock::new(None),
            node: options.node,
            volume: options.volume,
            directory: directory.to_owned(),
            inherited_results: inherited_results.unwrap_or_default(),
            lock,
        };
        let inner = Arc::new(Inner {
            db: Mutex::new(db),
            shared,
            foreground: ForegroundLoad::new(options.background),
        });
        let (mut committer, mut pool_worker, mut workers) = (None, None, None);
        if options.background {
            let failed = |error| data::backing::unusable(&path, error);
            committer = Some(Committer::start(inner.clone(), &path).map_err(failed)?);
            pool_worker = Some(PoolWorker::start(inner.clone()).map_err(failed)?);
            workers = Some(data::prefetch::Workers::start(inner.clone()).map_err(failed)?);
        }
        Ok(Self { inner, _pool_worker: pool_worker, _workers: workers, _committer: committer })
    }

    /// Returns the identifier of the volume, as given to [`open`](Self::open).
    pub fn volume(&self) -> &str {
        &self.inner.shared.volume
    }

    /// Returns the directory of the replica.
    pub fn directory(&self) -> &Path {
        &self.inner.shared.directory
    }

    /// Returns the name of this node.
    pub fn node_name(&self) -> &NodeName {
        &self.inner.shared.node
    }

    /// Sets the caches to invalidate for changes applied by synchronisation. Only the first call has an effect.
    pub fn set_caches(&self, caches: Arc<dyn KernelCache>) {
        self.inner.shared.kernel_cache.set(caches).ok();
    }

    /// Sets whether peers wait for changes of this node: synchronisation then does not yield to foreground operations.
    pub(crate) fn set_urgent(&self, urgent: bool) {
        self.inner.foreground.set_urgent(urgent);
    }

    /// Calls [`KernelCache::names_stale`].
    pub(crate) fn names_stale(&self) -> BoxFuture<'static, ()> {
        match self.inner.shared.kernel_cache.get() {
            Some(caches) => caches.names_stale(),
            None => Box::pin(std::future::ready(())),
        }
    }

    /// Calls [`KernelCache::settled`].
    pub(crate) fn caches_settled(&self) -> BoxFuture<'static, ()> {
        match self.inner.shared.kernel_cache.get() {
            Some(caches) => caches.settled(),
            None => Box::pin(std::future::ready(())),
        }
    }

    /// Sets the callback for local commits, which may be pending changes to synchronise. It must not block.
    pub fn set_watcher(&self, watcher: Option<Watcher>) {
        *self.inner.shared.watcher.write() = watcher;
    }

    /// Sets the source of contents that are not cached; with `None` they cannot be fetched.
    pub fn set_fetcher(&self, fetcher: Option<Arc<dyn Fetcher>>) {
        *self.inner.shared.fetcher.write() = fetcher;
    }

    /// Adds a reference to an inode, which then stays, linked or not, until as many references are released.
    pub fn add_lookup(&self, num: u64) {
        self.inner.shared.lookup_counts.add(num);
    }

    /// Drops references to an inode, and removes an unlinked one after the last.
    pub fn remove_lookups(&self, num: u64, uses: u64) {
        if !self.inner.shared.lookup_counts.remove(num, uses) {
            return;
        }
        let mut db = self.inner.db.lock();
        if db.unlinked_open.contains(&num) && db.opens.contains_key(&num) {
            self.inner.shared.lookup_counts.note_forgotten(num);
        } else if db.unlinked_open.contains(&num) {
            // A failure is logged and repaired when the replica is opened again.
            let dropped = db.drop_unlinked(num);
            // A full log only means that the change is lost with this process, and repeated by the next one.
            db.append_redo(0).ok();
            drop(db);
            if dropped.is_ok() {
                self.inner.shared.durability.notify_changed();
            }
        }
    }

    /// Invalidates the attributes of all referenced inodes, because the owner mapping changed.
    pub fn invalidate_all_attributes(&self) {
        let Some(caches) = self.inner.shared.kernel_cache.get() else { return };
        let all = self.inner.shared.known_inodes(&self.inner.db.lock());
        all.into_iter().chain([ROOT]).for_each(|num| caches.object_changed(num));
    }

    /// Reports whether the kernel holds a reference to an inode (FUSE nlookup).
    pub fn is_looked_up(&self, num: u64) -> bool {
        self.inner.shared.lookup_counts.contains(num)
    }

    /// Counts changes applied by synchronisation: incremented before [`KernelCache`] is notified and before a caller can see
    /// them.
    pub fn applied(&self) -> u64 {
        self.inner.shared.applied.load(Ordering::SeqCst)
    }

    /// Counts rollbacks that lost changes already acknowledged to users.
    pub fn rollbacks(&self) -> u64 {
        self.inner.shared.rollbacks.load(Ordering::Relaxed)
    }

    /// Returns the number of inodes that the kernel references.
    pub fn looked_up_inodes(&self) -> u64 {
        self.inner.shared.lookup_counts.len()
    }

    /// Returns the last commit of the store that is applied to this replica.
    ///
    /// # Errors
    /// EIO.
    pub fn cursor(&self) -> Result<Seq, Errno> {
        self.read(|db| db.cursor())
    }

    /// Reports whether the user set this node offline.
    ///
    /// # Errors
    /// EIO.
    pub fn is_offline_requested(&self) -> Result<bool, Errno> {
        self.read(|db| Ok(db.db.prepare_cached("SELECT 1 FROM meta WHERE key = 'offline'")?.exists([])?))
    }

    /// Stores whether the user set this node offline; the setting survives a restart.
    ///
    /// # Errors
    /// EIO, ENOSPC.
    pub fn set_offline(&self, offline: bool) -> Result<(), Errno> {
        self.change(|db, _| {
            db.begin()?;
            db.db.execute("DELETE FROM meta WHERE key = 'offline'", [])?;
            if offline {
                db.db.execute("INSERT INTO meta VALUES ('offline', 1)", [])?;
            }
            Ok(())
        })?;
        self.sync()
    }

    fn read<T>(&self, read: impl FnOnce(&mut ReplicaDb) -> Result<T>) -> Result<T, Errno> {
        self.inner.read(read)
    }

    /// Makes a change atomically.
    fn change<T>(&self, change: impl FnOnce(&mut ReplicaDb, &Shared) -> Result<T>) -> Result<T, Errno> {
        self.inner.change(change)
    }
}

impl Inner {
    /// Reads for synchronisation, which takes the lock as background work: it is not counted as foreground load.
    fn read_in_background<T>(&self, read: impl FnOnce(&mut ReplicaDb) -> Result<T>) -> Result<T, Errno> {
        read(&mut self.db.lock()).map_err(|fail| fail.errno)
    }

    fn read<T>(&self, read: impl FnOnce(&mut ReplicaDb) -> Result<T>) -> Result<T, Errno> {
        read(&mut self.foreground.lock_foreground(&self.db)).map_err(|fail| fail.errno)
    }

    fn change<T>(&self, change: impl FnOnce(&mut ReplicaDb, &Shared) -> Result<T>) -> Result<T, Errno> {
        let mut db = self.foreground.lock_foreground(&self.db);
        let done = change(&mut db, &self.shared);
        let fail = match done {
            Ok(done) => {
                db.changes += 1;
                let logged = db.append_redo(succession::current_request());
                let full = db.changes >= db::group_commit::MAX_BATCH_CHANGES || logged.is_err();
                if full && let Err(fail) = self.shared.commit(&mut db) {
                    return Err(fail.errno);
                }
                if let Err(full) = logged {
                    db.add_result(&full);
                }
                drop(db);
                self.shared.durability.notify_changed();
                return Ok(done);
            }
            Err(fail) => fail,
        };
        if fail.database {
            // A partly executed change must not be committed, and it cannot be separated from the rest of the transaction.
            db.roll_back();
            self.shared.invalidate_rolled_back(&mut db);
        }
        Err(fail.errno)
    }
}
