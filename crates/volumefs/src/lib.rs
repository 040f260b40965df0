//! A replica of a volume, mounted.
//!
//! [`shunt_volume`] is the engine, which knows nothing of requests. [`VolumeFs`] is its thin face: each request is
//! translated, and the replica does it. The kernel reads and writes files that are complete by itself, from their backing
//! files, and keeps what it was told of names and attributes for an hour: whatever synchronisation changes is told to it.

mod coherence;
mod convert;
mod errseq;
mod fuse_ops;
mod handles;
mod history;
mod idmap;
mod inode_generation;
mod kernel_invalidator;
mod locks;
mod open_versions;
mod opens;
mod readdir;
mod recent_invalidations;
mod tree;
mod writable_mappings;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use shunt_fuse::mount::MountOptions;
use shunt_fuse::{Capabilities, Config, Expiry, Profile};
use shunt_volume::history::View;
use shunt_volume::lease::Leases;
use shunt_volume::replica::{CacheManager, Fetcher, ROOT, Replica, StoreFetcher};
use shunt_volume::sync::Runner;

use handles::Handles;
pub use idmap::Owners;
pub use tree::TreeFs;

/// How long the kernel believes what it was told. It is told of changes; this bounds what a lost one can do.
pub const ATTR_TTL: Expiry = Expiry::after(Duration::from_secs(3600));

/// The same for a file that may be written through a mapping, which the kernel does not see.
const MMAP_ATTR_TTL: Expiry = Expiry::after(Duration::from_secs(1));

/// The same for names, where a kernel (before protocol 7.44) cannot be told that all of them are old.
const LEGACY_NAME_TTL: Expiry = Expiry::after(Duration::from_secs(1));

/// A replica, ready to be served.
pub struct VolumeFs {
    replica: Arc<Replica>,
    name: String,
    runner: Option<Arc<Runner>>,
    cache_manager: Option<CacheManager>,
    leases: Option<Arc<Leases>>,
    locks: Option<locks::Locks>,
    owners: Option<Box<dyn Owners>>,
    fetcher: Option<Arc<StoreFetcher>>,
    files: Handles<opens::OpenFile>,
    directories: Handles<readdir::OpenDirectory>,
    history: Option<history::HistoryFs>,
    historic_files: Handles<history::HistoricFile>,
    /// `NAME@WHEN` is found beside NAME.
    timestamped_names: bool,
    passthrough: bool,
    trusts_open_flags: bool,
    is_read_only: Box<dyn Fn() -> bool + Send + Sync>,
    versions: Arc<open_versions::OpenVersions>,
    mappings: Arc<writable_mappings::WritableMappings>,
    removed_dirs: inode_generation::RemovedDirGenerations,
    /// The kernel refused a backing file: that is said once.
    passthrough_refused: AtomicBool,
    errseq: errseq::ErrSeq,
    /// The kernel cannot be told that all names are old.
    lacks_invalidate_all: Arc<AtomicBool>,
}

impl VolumeFs {
    /// Serves a replica.
    pub fn new(replica: Arc<Replica>) -> Self {
        Self {
            mappings: writable_mappings::WritableMappings::new(replica.clone()),
            errseq: errseq::ErrSeq::new(&replica),
            replica,
            name: String::new(),
            runner: None,
            cache_manager: None,
            leases: None,
            locks: None,
            owners: None,
            fetcher: None,
            files: Handles::default(),
            directories: Handles::default(),
            history: None,
            historic_files: Handles::default(),
            timestamped_names: false,
            passthrough: true,
            trusts_open_flags: false,
            is_read_only: Box::new(|| false),
            versions: Arc::default(),
            removed_dirs: inode_generation::RemovedDirGenerations::default(),
            passthrough_refused: AtomicBool::new(false),
            lacks_invalidate_all: Arc::default(),
        }
    }

    /// Has all data go through the daemon.
    pub fn without_passthrough(mut self) -> Self {
        self.passthrough = false;
        self
    }

    /// Passes opens with O_APPEND or O_DIRECT through too: see [`Config::trust_open_flags`].
    pub fn trusting_open_flags(mut self) -> Self {
        self.trusts_open_flags = true;
        self
    }

    /// Says who knows whether this machine may change nothing: EROFS then. Files that are open to be written stay so.
    pub fn read_only_while(mut self, is_read_only: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.is_read_only = Box::new(is_read_only);
        self
    }

    /// Whether it is so now.
    pub fn is_read_only(&self) -> bool {
        (self.is_read_only)()
    }

    /// Shows what was as well, in the entry [`HISTORY`](shunt_volume::history::HISTORY) of each directory, with contents that somebody
    /// brings.
    pub fn with_history(mut self, view: View, contents: Arc<dyn Fetcher>) -> Self {
        self.history = Some(history::HistoryFs::new(view, contents));
        self
    }

    /// Shows what was as `NAME@WHEN` beside NAME, too. Such a name cannot be given to anything new then.
    pub fn with_timestamped_names(mut self, shown: bool) -> Self {
        self.timestamped_names = shown;
        self
    }

    /// Says what users call the volume.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// What users call the volume.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Says who synchronises the replica.
    pub fn with_runner(mut self, runner: Arc<Runner>) -> Self {
        self.runner = Some(runner);
        self
    }

    /// Shows users and groups of the volume under other numbers. Those that would come back as others cannot own anything:
    /// EOVERFLOW.
    pub fn with_owners(mut self, owners: Box<dyn Owners>) -> Self {
        self.owners = Some(owners);
        self
    }

    /// Says how others hear of changes.
    pub fn with_leases(mut self, leases: Arc<Leases>) -> Self {
        self.leases = Some(leases);
        self
    }

    /// Has locks hold on all connected machines: to be said after [`with_leases`](Self::with_leases).
    pub fn with_cluster_locks(mut self) -> Self {
        self.locks = self.leases.clone().map(locks::Locks::new);
        self
    }

    /// How others hear of changes, if they do.
    pub fn leases(&self) -> Option<&Arc<Leases>> {
        self.leases.as_ref()
    }

    /// Who synchronises the replica, if anybody does.
    pub fn runner(&self) -> Option<&Arc<Runner>> {
        self.runner.as_ref()
    }

    /// Says who sees to what is here.
    pub fn with_cache_manager(mut self, cache_manager: CacheManager) -> Self {
        self.cache_manager = Some(cache_manager);
        self
    }

    /// Says where contents come from.
    pub fn with_fetcher(mut self, fetcher: Arc<StoreFetcher>) -> Self {
        self.fetcher = Some(fetcher);
        self
    }

    /// Where contents come from, if from anywhere.
    pub fn fetcher(&self) -> Option<&StoreFetcher> {
        self.fetcher.as_deref()
    }

    /// Who sees to what is here, if anybody does.
    pub fn cache_manager(&self) -> Option<&CacheManager> {
        self.cache_manager.as_ref()
    }

    /// The replica.
    pub fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }

    /// What a session for it asks of the kernel.
    pub fn config(&self) -> Config {
        // AUTO_INVAL_DATA: a file that is read through the kernel's pages has its length asked for once that is in doubt. Without
        // it a read that goes no further than the length of the version before is filled up with zeros.
        // Not ATOMIC_O_TRUNC: with it a program that runs is truncated before that is refused. Not the umask: the kernel
        // applies it, as there are no ACLs.
        let wanted = Capabilities::HANDLE_KILLPRIV_V2
            | Capabilities::CACHE_SYMLINKS
            | Capabilities::EXPORT_SUPPORT
            | Capabilities::AUTO_INVAL_DATA
            | Capabilities::DO_READDIRPLUS
            | Capabilities::READDIRPLUS_AUTO;
        let config = Config::new(Profile::Passthrough).request(wanted);
        let locks = Capabilities::POSIX_LOCKS | Capabilities::FLOCK_LOCKS;
        let config = if self.locks.is_some() { config.require(locks) } else { config };
        let config = if self.trusts_open_flags { config.trust_open_flags() } else { config };
        if self.passthrough { config } else { config.without(Capabilities::PASSTHROUGH) }
    }

    /// What the kernel must be told: it checks permissions, the face does not.
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
