//! The tree as one node has it.
//!
//! A [`Replica`] is a database with all the metadata of a volume, and a directory of backing files with contents as far as
//! they were wanted. It is read and changed as if there was no network: each change also notes what both sides had agreed
//! on before, and synchronisation carries it away later.
//!
//! What is changed lasts from the next `sync` on; without one it is committed within 20 ms, which outlives the
//! process but not the machine. A replica that was killed at any point is whole when it is opened again.

mod cache;
mod data;
mod db;
mod error;
mod namespace;
mod recover;
mod sync_adapter;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use rusqlite::Connection;
use rustix::io::Errno;

pub use cache::cache_manager::{CacheManager, CacheMode, CachePolicy};
pub use cache::eviction::CacheStats;
pub use data::fetch::{Fetcher, WholeFile};
pub use data::open_file::Opened;
pub use data::store_fetcher::StoreFetcher;
pub use db::basis_cache::BasisFile;
pub use db::inode::{CacheState, Dirty, Inode, ROOT};
pub use db::usage_counts::Quota;
pub use error::ReplicaError;
pub use namespace::dentries::{DirEntry, NewObject, Rename};
pub use namespace::setattr::SetAttr;
pub use sync_adapter::SyncAdapter;
pub use sync_adapter::applying::{Applying, LocalObject};
pub use sync_adapter::conflicts::{InConflict, Version};
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

/// Who has to hear of what synchronisation changed: caches in front of a replica.
///
/// Calls come before anybody sees the change, while the replica is locked: they must not wait, nor ask it for anything.
pub trait KernelCache: Send + Sync {
    /// Attributes of an object.
    fn object_changed(&self, num: u64);
    /// What a name of a directory leads to; the directory's listing and attributes too. `was_directory`: it led to a directory,
    /// in which somebody may be.
    fn link_changed(&self, parent: u64, name: &[u8], was_directory: bool);
    /// What a file holds, with its attributes.
    fn content_changed(&self, num: u64);

    /// Any name may lead elsewhere from now on: none is believed that was told before this is ready.
    fn names_stale(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Ready once all that was said so far is known.
    fn settled(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The clock of a replica.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// Who hears of commits.
pub type Watcher = Box<dyn Fn() + Send + Sync>;

/// How a replica is opened.
#[derive(Clone)]
pub struct Options {
    /// The volume, by something that no other has.
    pub volume: String,
    /// This node.
    pub node: NodeName,
    /// Commits by itself, on a thread. Without, nothing lasts but by [`Replica::commit`] and [`Replica::sync`].
    pub background: bool,
    /// The time.
    pub clock: Clock,
    /// The upper half of new ids; by chance if not given. No two sessions of any node may have the same.
    pub ids: Option<u64>,
    /// The user and group that a new volume's top directory belongs to until the store says otherwise.
    pub owner: (u32, u32),
}

impl Options {
    /// As a node has it.
    pub fn new(volume: impl Into<String>, node: NodeName) -> Self {
        Self {
            volume: volume.into(),
            node,
            background: true,
            clock: Arc::new(db::now),
            ids: None,
            owner: (0, 0),
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

/// The tree as one node has it.
pub struct Replica {
    inner: Arc<Inner>,
    _pool_worker: Option<PoolWorker>,
    /// End before the database does.
    _workers: Option<data::prefetch::Workers>,
    _committer: Option<Committer>,
}

/// What the committer shares.
pub(crate) struct Inner {
    core: Mutex<ReplicaDb>,
    shared: Shared,
    foreground: ForegroundLoad,
}

/// What is not under the lock of the database.
pub(crate) struct Shared {
    files: BackingDir,
    backing_pool: BackingFilePool,
    lookup_counts: LookupCounts,
    clock: Clock,
    durability: Durability,
    fetching: InflightFetches,
    prefetcher: data::prefetch::Prefetcher,
    offline_misses: cache::offline_misses::OfflineMisses,
    /// Rings when what is here may have changed.
    cache_changed: cache::eviction::Notify,
    /// There are limits to what may be held.
    limited: Arc<AtomicBool>,
    fetcher: RwLock<Option<Arc<dyn Fetcher>>>,
    kernel_cache: OnceLock<Arc<dyn KernelCache>>,
    applied: AtomicU64,
    rollbacks: AtomicU64,
    watcher: RwLock<Option<Watcher>>,
    node: NodeName,
    volume: String,
    directory: PathBuf,
    /// Held as long as the replica is open.
    _lock: std::fs::File,
}

impl Shared {
    fn now(&self) -> Time {
        (self.clock)()
    }

    /// Commits what was changed, and tells caches where that cannot be.
    fn commit(&self, core: &mut ReplicaDb) -> Result<()> {
        let done = self.durability.commit(core);
        if done.is_err() {
            self.invalidate_rolled_back(core);
        }
        done
    }

    /// Whatever somebody was shown may not be so.
    fn invalidate_rolled_back(&self, core: &mut ReplicaDb) {
        if !core.take_rolled_back() {
            return;
        }
        self.rollbacks.fetch_add(1, Ordering::Relaxed);
        let Some(caches) = self.kernel_cache.get() else { return };
        drop(caches.names_stale());
        self.lookup_counts.all().into_iter().chain([ROOT]).for_each(|num| caches.content_changed(num));
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replica").field("node", &self.inner.shared.node).finish_non_exhaustive()
    }
}

impl Replica {
    /// Opens the replica in a directory, or makes one there. What a crash left is put right.
    ///
    /// # Errors
    /// See [`ReplicaError`].
    pub fn open(directory: &Path, options: Options) -> Result<Self, ReplicaError> {
        let lock = data::backing::lock(directory)?;
        let path = directory.join("replica.db");
        let db = Connection::open(&path)?;
        db::schema::prepare(&db)?;
        let is_new = db::schema::create(&db)?;
        let first_id = u128::from(options.ids.unwrap_or_else(rand::random)) << 64;
        let mut core = ReplicaDb::new(db, first_id)?;
        let files = BackingDir::open(directory)?;
        recover::recover(&mut core, &files, &options, is_new)?;
        core.conflicts = db::conflict_dirs::directories(&core)
            .map_err(|fail| data::backing::unusable("conflicts".as_ref(), fail.errno.into()))?;
        let durable = Durability::new(&path);
        let shared = Shared {
            files,
            backing_pool: BackingFilePool::default(),
            lookup_counts: LookupCounts::default(),
            clock: options.clock,
            durability: durable,
            fetching: InflightFetches::default(),
            prefetcher: data::prefetch::Prefetcher::default(),
            offline_misses: cache::offline_misses::OfflineMisses::default(),
            cache_changed: cache::eviction::Notify::default(),
            limited: core.usage.flag(),
            fetcher: RwLock::new(None),
            kernel_cache: OnceLock::new(),
            applied: AtomicU64::new(0),
            rollbacks: AtomicU64::new(0),
            watcher: RwLock::new(None),
            node: options.node,
            volume: options.volume,
            directory: directory.to_owned(),
            _lock: lock,
        };
        let inner = Arc::new(Inner {
            core: Mutex::new(core),
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

    /// The volume, as it was opened.
    pub fn volume(&self) -> &str {
        &self.inner.shared.volume
    }

    /// Where it is kept.
    pub fn directory(&self) -> &Path {
        &self.inner.shared.directory
    }

    /// This node.
    pub fn node_name(&self) -> &NodeName {
        &self.inner.shared.node
    }

    /// Who hears of changes that synchronisation makes. The first counts.
    pub fn set_caches(&self, caches: Arc<dyn KernelCache>) {
        self.inner.shared.kernel_cache.set(caches).ok();
    }

    /// Whether others wait for what is changed here: then synchronisation lets nobody go first.
    pub(crate) fn set_urgent(&self, urgent: bool) {
        self.inner.foreground.set_urgent(urgent);
    }

    /// See [`KernelCache::names_stale`].
    pub(crate) fn names_stale(&self) -> BoxFuture<'static, ()> {
        match self.inner.shared.kernel_cache.get() {
            Some(caches) => caches.names_stale(),
            None => Box::pin(std::future::ready(())),
        }
    }

    /// See [`KernelCache::settled`].
    pub(crate) fn caches_settled(&self) -> BoxFuture<'static, ()> {
        match self.inner.shared.kernel_cache.get() {
            Some(caches) => caches.settled(),
            None => Box::pin(std::future::ready(())),
        }
    }

    /// Who hears that something was committed here: what there is to synchronise. It must not wait.
    pub fn set_watcher(&self, watcher: Option<Watcher>) {
        *self.inner.shared.watcher.write() = watcher;
    }

    /// Who brings contents that are not here; `None`: nobody can.
    pub fn set_fetcher(&self, fetcher: Option<Arc<dyn Fetcher>>) {
        *self.inner.shared.fetcher.write() = fetcher;
    }

    /// Somebody uses an object once more: it stays, with or without a name, until as many uses ended.
    pub fn add_lookup(&self, num: u64) {
        self.inner.shared.lookup_counts.add(num);
    }

    /// So many uses of an object ended.
    pub fn remove_lookups(&self, num: u64, uses: u64) {
        if !self.inner.shared.lookup_counts.remove(num, uses) {
            return;
        }
        let mut core = self.inner.core.lock();
        if core.unlinked_open.contains(&num) && !core.opens.contains_key(&num) {
            // What fails is in the log; it is put right when the replica is opened again.
            let buried = core.drop_unlinked(num);
            drop(core);
            if buried.is_ok() {
                self.inner.shared.durability.notify_changed();
            }
        }
    }

    /// Says of each object that is used that its attributes changed: they are shown in another way.
    pub fn invalidate_all_attributes(&self) {
        let Some(caches) = self.inner.shared.kernel_cache.get() else { return };
        let all = self.inner.shared.lookup_counts.all();
        all.into_iter().chain([ROOT]).for_each(|num| caches.object_changed(num));
    }

    /// Whether an object is used.
    pub fn is_looked_up(&self, num: u64) -> bool {
        self.inner.shared.lookup_counts.contains(num)
    }

    /// Goes up when synchronisation has changed something, before [`KernelCache`] hear of it and before anybody sees it.
    pub fn applied(&self) -> u64 {
        self.inner.shared.applied.load(Ordering::SeqCst)
    }

    /// Goes up when what was answered could not be kept, and is not so any more.
    pub fn rollbacks(&self) -> u64 {
        self.inner.shared.rollbacks.load(Ordering::Relaxed)
    }

    /// Objects that are used now.
    pub fn looked_up_inodes(&self) -> u64 {
        self.inner.shared.lookup_counts.len()
    }

    /// The last commit of the store that is in this replica.
    ///
    /// # Errors
    /// EIO.
    pub fn cursor(&self) -> Result<Seq, Errno> {
        self.read(|core| core.cursor())
    }

    /// Whether somebody wants this machine to leave the store alone.
    ///
    /// # Errors
    /// EIO.
    pub fn is_offline_requested(&self) -> Result<bool, Errno> {
        self.read(|core| Ok(core.db.prepare_cached("SELECT 1 FROM meta WHERE key = 'offline'")?.exists([])?))
    }

    /// Remembers that, also after a restart.
    ///
    /// # Errors
    /// EIO, ENOSPC.
    pub fn set_offline(&self, offline: bool) -> Result<(), Errno> {
        self.change(|core, _| {
            core.begin()?;
            core.db.execute("DELETE FROM meta WHERE key = 'offline'", [])?;
            if offline {
                core.db.execute("INSERT INTO meta VALUES ('offline', 1)", [])?;
            }
            Ok(())
        })?;
        self.sync()
    }

    fn read<T>(&self, read: impl FnOnce(&mut ReplicaDb) -> Result<T>) -> Result<T, Errno> {
        self.inner.read(read)
    }

    /// Makes a change, all of it or nothing.
    fn change<T>(&self, change: impl FnOnce(&mut ReplicaDb, &Shared) -> Result<T>) -> Result<T, Errno> {
        self.inner.change(change)
    }
}

impl Inner {
    /// For synchronisation, which is not one of those it gives way to.
    fn read_in_background<T>(&self, read: impl FnOnce(&mut ReplicaDb) -> Result<T>) -> Result<T, Errno> {
        read(&mut self.core.lock()).map_err(|fail| fail.errno)
    }

    fn read<T>(&self, read: impl FnOnce(&mut ReplicaDb) -> Result<T>) -> Result<T, Errno> {
        read(&mut self.foreground.lock_foreground(&self.core)).map_err(|fail| fail.errno)
    }

    fn change<T>(&self, change: impl FnOnce(&mut ReplicaDb, &Shared) -> Result<T>) -> Result<T, Errno> {
        let mut core = self.foreground.lock_foreground(&self.core);
        let done = change(&mut core, &self.shared);
        let fail = match done {
            Ok(done) => {
                core.changes += 1;
                let full = core.changes >= db::group_commit::MAX_BATCH_CHANGES;
                if full && let Err(fail) = self.shared.commit(&mut core) {
                    return Err(fail.errno);
                }
                drop(core);
                self.shared.durability.notify_changed();
                return Ok(done);
            }
            Err(fail) => fail,
        };
        if fail.database {
            // Half of a change must not be committed, and there is no telling the halves apart.
            core.roll_back();
            self.shared.invalidate_rolled_back(&mut core);
        }
        Err(fail.errno)
    }
}
