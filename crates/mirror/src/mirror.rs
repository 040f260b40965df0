//! The mirror file system: the engine of [`lower`](crate::lower) combined with a cache mode.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use parking_lot::Mutex;
use shunt_fuse::{Capabilities, Config, NodeId, Profile};

use crate::coherence::{self, Caching, Coherence, EventCounters};
use crate::hot_files::RecentOpens;
use crate::lower::source::Source;
use crate::lower::{IdMaps, Lower, LowerOptions, Memory};
use crate::pins::Pins;
use crate::prune::Pruner;
use crate::search::Searches;
use crate::writable_mmap::WritableMappings;
use crate::{CacheMode, MirrorError, MirrorOptions, PassthroughMode};

/// A source directory, ready to be served.
pub struct Mirror {
    pub(crate) lower: Arc<Lower>,
    pub(crate) source: PathBuf,
    /// The cache mode in force; never `Auto`.
    pub(crate) cache: CacheMode,
    caching: Caching,
    pub(crate) coherence: Coherence,
    pub(crate) passthrough: PassthroughMode,
    /// Every OPEN is sent to the daemon, even where the kernel could open files without it.
    pub(crate) always_opens: AtomicBool,
    /// Every OPENDIR is sent to the daemon.
    pub(crate) lists_opened: bool,
    pub(crate) passes_rereads: bool,
    pub(crate) pruner: Pruner,
    pub(crate) writable_mappings: WritableMappings,
    pub(crate) recent_opens: RecentOpens,
    pub(crate) searches: Arc<Searches>,
    pub(crate) pins: Pins,
    /// Logs a passthrough failure once, not at every open.
    pub(crate) passthrough_failed: Once,
    /// Descriptors handed over by an earlier daemon, kept until the session starts.
    pub(crate) inherited: Mutex<BTreeMap<u64, OwnedFd>>,
    /// Inode descriptors handed over by an earlier daemon for inodes without an open file.
    pub(crate) inherited_nodes: Mutex<Vec<(NodeId, OwnedFd)>>,
}

impl Mirror {
    /// Opens the source directory of `options`.
    ///
    /// # Errors
    /// [`MirrorError`]; each is one line with the cause and the remedy.
    pub fn open(options: MirrorOptions) -> Result<Self, MirrorError> {
        Self::open_source(options, None)
    }

    /// Opens the mirror like [`open`](Self::open), optionally with an already open source.
    pub(crate) fn open_source(options: MirrorOptions, opened: Option<Source>) -> Result<Self, MirrorError> {
        let MirrorOptions {
            source,
            cache,
            read_only,
            read_times,
            uid_map,
            gid_map,
            max_inodes,
            passthrough,
            resumes,
            inotify,
            always_opens,
            passes_rereads,
        } = options;
        let ids = IdMaps { users: uid_map, groups: gid_map };
        let open = |watch| {
            let opened = opened
                .as_ref()
                .map_or_else(|| Source::open(&source, read_only, read_times), Source::share)?;
            let ids = ids.clone();
            let options = LowerOptions { source: source.clone(), read_only, read_times, ids, resumes, watch };
            Lower::open_source(options, opened)
        };
        let (lower, refused) =
            coherence::open(cache, inotify, open).map_err(|errno| MirrorError::new(source.clone(), errno))?;
        let caching = Caching::new(cache, &lower, refused);
        let limit = max_inodes.into_iter().chain(lower.node_limit()).min();
        Ok(Self {
            lower: Arc::new(lower),
            source,
            cache: caching.mode,
            caching,
            coherence: Coherence::default(),
            passthrough,
            always_opens: AtomicBool::new(always_opens),
            lists_opened: always_opens,
            passes_rereads,
            pruner: Pruner::new(limit),
            writable_mappings: WritableMappings::default(),
            recent_opens: RecentOpens::default(),
            searches: Arc::default(),
            pins: Pins::default(),
            passthrough_failed: Once::new(),
            inherited: Mutex::default(),
            inherited_nodes: Mutex::default(),
        })
    }

    /// Opens the same source as an independent mirror, with its own inodes and open files.
    ///
    /// `options` are the ones this mirror was opened with. Their path is not resolved again.
    ///
    /// # Errors
    /// No descriptor is available, or the source was removed.
    pub fn reopen(&self, options: MirrorOptions) -> Result<Self, MirrorError> {
        let failed = |errno| MirrorError::new(options.source.clone(), errno);
        let root = rustix::io::fcntl_dupfd_cloexec(self.lower.root(), 0).map_err(failed)?;
        let source = Source { root, attached: self.lower.attached(), is_fs_root: self.lower.is_fs_root() };
        Self::open_source(options, Some(source))
    }

    /// The capabilities and settings that a session of this file system requests from the kernel.
    ///
    /// The mount must have `default_permissions`: the kernel checks permissions, the daemon does not.
    pub fn config(&self) -> Config {
        let features = self.lower.features();
        // Not ATOMIC_O_TRUNC: with it the kernel lets `open` truncate the file before it checks whether the file is a
        // running program, so ETXTBSY comes too late.
        let mut capabilities = Capabilities::HANDLE_KILLPRIV_V2
            | Capabilities::DONT_MASK
            | Capabilities::CACHE_SYMLINKS
            | Capabilities::EXPORT_SUPPORT
            | Capabilities::DO_READDIRPLUS;
        if features.acls {
            capabilities |= Capabilities::POSIX_ACL;
        }
        if self.cache != CacheMode::Exclusive {
            // READDIRPLUS pays off only if lookups follow the listing. With entries cached without expiry it always does.
            capabilities |= Capabilities::READDIRPLUS_AUTO;
            // Others may write the file: the kernel drops its pages when the modification time changed.
            capabilities |= Capabilities::AUTO_INVAL_DATA;
        }
        let mut config = Config::new(Profile::Passthrough).request(capabilities);
        match self.passthrough {
            PassthroughMode::Auto => {}
            PassthroughMode::Always => config = config.trust_open_flags(),
            PassthroughMode::Off => config = config.without(Capabilities::PASSTHROUGH),
        }
        if features.stacked {
            config = config.max_stack_depth(2);
        }
        config
    }

    /// Returns the permission bits of the source itself, or 0 if `fstat(2)` fails.
    pub fn root_permissions(&self) -> u16 {
        rustix::fs::fstat(self.lower.root()).map_or(0, |root| (root.st_mode & 0o7777) as u16)
    }

    /// Describes how the source is shown.
    pub fn describe(&self) -> Description {
        Description {
            source: self.source.clone(),
            private_view: self.lower.attached().is_none(),
            file_handles: self.lower.has_handles(),
            xattrs: self.lower.features().xattrs,
            acls: self.lower.features().acls,
            max_inodes: self.pruner.limit(),
        }
    }

    /// The cache mode in force and the reason for it.
    pub fn caching(&self) -> &Caching {
        &self.caching
    }

    /// The engine below the FUSE layer.
    pub fn engine(&self) -> &Lower {
        &self.lower
    }

    /// The pinned names of this mirror.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Decides whether every OPEN is sent to the daemon from now on, even where the kernel could open files without it.
    pub fn set_always_opens(&self, always: bool) {
        self.always_opens.store(always, Ordering::Release);
    }

    /// Returns the counters of change events, if the source is watched.
    pub fn event_counters(&self) -> Option<EventCounters> {
        let watch = self.lower.watch().filter(|_| self.cache == CacheMode::Coherent)?;
        Some(EventCounters { events: watch.events(), overflows: watch.overflows() })
    }

    /// Reports whether every change of a node either arrives as a request of this mount or is invalidated in the kernel
    /// as it happens, so that replies about it stay valid until then. Sizes and times of files that others write cause
    /// no invalidation.
    pub fn is_invalidated_on_change(&self, node: NodeId) -> bool {
        match self.cache {
            CacheMode::Exclusive => true,
            CacheMode::Coherent => {
                self.lower.reports_inode_changes() && self.lower.is_watched(node, self.lower.moment())
            }
            _ => false,
        }
    }

    /// Reports whether the source updates access times by the relatime rule (`mount(8)`), or not at all.
    pub fn uses_relatime(&self) -> bool {
        self.lower.features().relatime
    }

    /// Returns the memory that the engine uses.
    pub fn memory(&self) -> Memory {
        self.lower.memory()
    }
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror")
            .field("source", &self.source)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

/// A description of how a source is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The source directory.
    pub source: PathBuf,
    /// The source is accessed through a private copy of the mount tree: mounts below it are shown, and it may be
    /// mounted over itself.
    pub private_view: bool,
    /// Inodes are kept as file handles and need no descriptor each.
    pub file_handles: bool,
    /// Extended attributes are passed through.
    pub xattrs: bool,
    /// POSIX ACLs are enforced.
    pub acls: bool,
    /// Limit on the number of inodes that the kernel caches.
    pub max_inodes: Option<u64>,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source.display())?;
        write!(
            f,
            ", {}",
            if self.file_handles { "inodes by file handle" } else { "one descriptor per inode" }
        )?;
        if !self.private_view {
            write!(f, ", without submounts")?;
        }
        if !self.xattrs {
            write!(f, ", no extended attributes")?;
        } else if !self.acls {
            write!(f, ", no ACLs")?;
        }
        if let Some(limit) = self.max_inodes {
            write!(f, ", at most {limit} inodes")?;
        }
        Ok(())
    }
}
