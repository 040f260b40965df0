//! FUSE file system that serves a replica of a volume.
//!
//! [`shunt_volume`] is the engine, which knows nothing of requests. [`VolumeFs`] is a thin layer over it that translates each
//! FUSE request into calls of the replica. The kernel reads and writes complete files directly in their backing files, and
//! caches names and attributes for an hour; changes applied by synchronisation invalidate them.

mod coherence;
mod convert;
mod errseq;
mod fuse_ops;
mod handles;
mod history;
mod idmap;
mod inode_generation;
mod io_mode;
mod kernel_invalidator;
mod locks;
mod marks;
mod open;
mod open_file;
mod open_versions;
mod readdir;
mod recent_invalidations;
mod serving_memory;
mod size_coherence;
mod takeover;
mod tree;
mod writable_mappings;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use shunt_fuse::mount::MountOptions;
use shunt_fuse::{Capabilities, Config, Expiry, Profile};
use shunt_volume::history::View;
use shunt_volume::lease::Leases;
use shunt_volume::replica::{CacheManager, Fetcher, ROOT, Replica, StoreFetcher};
use shunt_volume::sync::Runner;

use handles::Handles;
pub use idmap::Owners;
pub use takeover::Succession;
pub use tree::TreeFs;

/// TTL of the kernel's caches. Changes invalidate them; the TTL bounds the effect of a lost invalidation.
pub const ATTR_TTL: Expiry = Expiry::after(Duration::from_secs(3600));

/// Attribute TTL of a file that may be written through a mapping, since the kernel does not see such writes.
const MMAP_ATTR_TTL: Expiry = Expiry::after(Duration::from_secs(1));

/// Name TTL for kernels before protocol 7.44, which cannot expire all names at once.
const LEGACY_NAME_TTL: Expiry = Expiry::after(Duration::from_secs(1));

/// A replica that a FUSE session can serve.
pub struct VolumeFs {
    replica: Arc<Replica>,
    name: String,
    runner: Option<Arc<Runner>>,
    cache_manager: Option<CacheManager>,
    leases: Option<Arc<Leases>>,
    locks: Option<locks::Locks>,
    owners: Option<Box<dyn Owners>>,
    fetcher: Option<Arc<StoreFetcher>>,
    files: Arc<Handles<open_file::OpenFile>>,
    directories: Handles<readdir::OpenDirectory>,
    history: Option<history::HistoryFs>,
    historic_files: Handles<history::HistoricFile>,
    /// `NAME@WHEN` is looked up next to NAME.
    timestamped_names: bool,
    passthrough: bool,
    trusts_open_flags: bool,
    is_read_only: Box<dyn Fn() -> bool + Send + Sync>,
    versions: Arc<open_versions::OpenVersions>,
    mappings: Arc<writable_mappings::WritableMappings>,
    removed_dirs: inode_generation::RemovedDirGenerations,
    /// A refused backing file was already logged.
    passthrough_refused: AtomicBool,
    errseq: errseq::ErrSeq,
    /// The kernel cannot expire all names at once.
    lacks_invalidate_all: Arc<AtomicBool>,
    /// The state for the next daemon; `None` without takeover.
    succession: Option<Succession>,
    /// Called once the open files of an earlier daemon are adopted.
    adopted: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    marks: Arc<marks::Marks>,
}

impl VolumeFs {
    /// Serves a replica, with no optional components.
    pub fn new(replica: Arc<Replica>) -> Self {
        let marks = Arc::<marks::Marks>::default();
        // The kernel does not tell the handles of historical files from others.
        let files = Arc::<Handles<open_file::OpenFile>>::default();
        Self {
            mappings: writable_mappings::WritableMappings::new(replica.clone(), marks.clone()),
            errseq: errseq::ErrSeq::new(&replica),
            replica,
            name: String::new(),
            runner: None,
            cache_manager: None,
            leases: None,
            locks: None,
            owners: None,
            fetcher: None,
            historic_files: Handles::new(files.numbers()),
            files,
            directories: Handles::default(),
            history: None,
            timestamped_names: false,
            passthrough: true,
            trusts_open_flags: false,
            is_read_only: Box::new(|| false),
            versions: Arc::default(),
            removed_dirs: inode_generation::RemovedDirGenerations::new(marks.clone()),
            passthrough_refused: AtomicBool::new(false),
            lacks_invalidate_all: Arc::default(),
            succession: None,
            adopted: Mutex::default(),
            marks,
        }
    }

    /// Disables passthrough, so that all data goes through the daemon.
    pub fn without_passthrough(mut self) -> Self {
        self.passthrough = false;
        self
    }

    /// Also uses passthrough for opens with O_APPEND or O_DIRECT: see [`Config::trust_open_flags`].
    pub fn trusting_open_flags(mut self) -> Self {
        self.trusts_open_flags = true;
        self
    }

    /// Sets the predicate that makes the mount read-only (EROFS). Files that are already open for writing stay writable.
    pub fn read_only_while(mut self, is_read_only: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.is_read_only = Box::new(is_read_only);
        self
    }

    /// Reports whether the mount is read-only now.
    pub fn is_read_only(&self) -> bool {
        (self.is_read_only)()
    }

    /// Shows earlier versions in the entry [`HISTORY`](shunt_volume::history::HISTORY) of each directory, with contents from a
    /// fetcher.
    pub fn with_history(mut self, view: View, contents: Arc<dyn Fetcher>) -> Self {
        self.history = Some(history::HistoryFs::new(view, contents));
        self
    }

    /// Also shows earlier versions as `NAME@WHEN` next to NAME. New files cannot have such names then.
    pub fn with_timestamped_names(mut self, shown: bool) -> Self {
        self.timestamped_names = shown;
        self
    }

    /// Sets the volume's name.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Returns the volume's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the runner that synchronises the replica.
    pub fn with_runner(mut self, runner: Arc<Runner>) -> Self {
        self.runner = Some(runner);
        self
    }

    /// Maps users and groups of the volume to other ids. An id that does not map back to itself cannot own anything: EOVERFLOW.
    pub fn with_owners(mut self, owners: Box<dyn Owners>) -> Self {
        self.owners = Some(owners);
        self
    }

    /// Sets the leases through which peers learn of changes.
    pub fn with_leases(mut self, leases: Arc<Leases>) -> Self {
        self.leases = Some(leases);
        self
    }

    /// Makes file locks hold on all connected nodes. Call it after [`with_leases`](Self::with_leases).
    pub fn with_cluster_locks(mut self) -> Self {
        self.locks = self.leases.clone().map(locks::Locks::new);
        self
    }

    /// Returns the leases through which peers learn of changes, if set.
    pub fn leases(&self) -> Option<&Arc<Leases>> {
        self.leases.as_ref()
    }

    /// Returns the runner that synchronises the replica, if set.
    pub fn runner(&self) -> Option<&Arc<Runner>> {
        self.runner.as_ref()
    }

    /// Sets the cache manager, which fetches and evicts contents.
    pub fn with_cache_manager(mut self, cache_manager: CacheManager) -> Self {
        self.cache_manager = Some(cache_manager);
        self
    }

    /// Sets the store from which contents are fetched.
    pub fn with_fetcher(mut self, fetcher: Arc<StoreFetcher>) -> Self {
        self.fetcher = Some(fetcher);
        self
    }

    /// Returns the store from which contents are fetched, if set.
    pub fn fetcher(&self) -> Option<&StoreFetcher> {
        self.fetcher.as_deref()
    }

    /// Returns the cache manager, if set.
    pub fn cache_manager(&self) -> Option<&CacheManager> {
        self.cache_manager.as_ref()
    }

    /// Returns the replica.
    pub fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }

    /// Returns the session configuration.
    pub fn config(&self) -> Config {
        // AUTO_INVAL_DATA: the kernel requests the length of a file that it reads through the page cache once that length is in
        // doubt. Without it, a read that stays within the length of the previous version is filled up with zeros.
        // Not ATOMIC_O_TRUNC: with it a running program is truncated before the open fails. Not DONT_MASK: there are no ACLs,
        // so the kernel applies the umask.
        let capabilities = Capabilities::HANDLE_KILLPRIV_V2
            | Capabilities::CACHE_SYMLINKS
            | Capabilities::EXPORT_SUPPORT
            | Capabilities::AUTO_INVAL_DATA
            | Capabilities::DO_READDIRPLUS
            | Capabilities::READDIRPLUS_AUTO;
        let config = Config::new(Profile::Passthrough).request(capabilities);
        let locks = Capabilities::POSIX_LOCKS | Capabilities::FLOCK_LOCKS;
        let config = if self.locks.is_some() { config.require(locks) } else { config };
        let config = if self.trusts_open_flags { config.trust_open_flags() } else { config };
        if self.passthrough { config } else { config.without(Capabilities::PASSTHROUGH) }
    }

    /// Returns the mount options. The kernel checks permissions (`default_permissions`); this crate does not.
    pub fn mount_options(&self) -> MountOptions {
        let root = self.replica.get(ROOT).map_or(0o755, |root| root.mode);
        MountOptions::new().default_permissions(true).root_permissions(root)
    }
}

impl std::fmt::Debug for VolumeFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VolumeFs").field("replica", &self.replica).finish_non_exhaustive()
    }
}
