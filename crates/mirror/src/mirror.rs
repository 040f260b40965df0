//! The file system: an engine, and how it is to be cached.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};

use parking_lot::Mutex;
use shunt_fuse::{Capabilities, Config, NodeId, Profile};

use crate::coherence::{self, Caching, Coherence, Heard};
use crate::fuse_ops::hot_files::Rereads;
use crate::fuse_ops::search::Searches;
use crate::fuse_ops::writable_mmap::Mappable;
use crate::lower::source::Source;
use crate::lower::{IdMaps, Lower, LowerOptions, Memory};
use crate::pins::Pins;
use crate::prune::Pruner;
use crate::{CacheMode, MirrorError, MirrorOptions, PassthroughMode};

/// A directory, ready to be served.
pub struct Mirror {
    pub(crate) lower: Arc<Lower>,
    pub(crate) source: PathBuf,
    /// What is in force.
    pub(crate) cache: CacheMode,
    caching: Caching,
    pub(crate) coherence: Coherence,
    pub(crate) passthrough: PassthroughMode,
    /// Opens of files are asked for, whatever else would be.
    pub(crate) always_opens: AtomicBool,
    /// And so are those of directories.
    pub(crate) lists_opened: bool,
    pub(crate) passes_rereads: bool,
    pub(crate) pruner: Pruner,
    pub(crate) mappable: Mappable,
    pub(crate) rereads: Rereads,
    pub(crate) searches: Arc<Searches>,
    pub(crate) pins: Pins,
    /// Said once, not at every open.
    pub(crate) passthrough_failed: Once,
    /// What an earlier daemon had held, until the session starts.
    pub(crate) inherited: Mutex<BTreeMap<u64, OwnedFd>>,
    /// The same of inodes that nobody had opened.
    pub(crate) inherited_nodes: Mutex<Vec<(NodeId, OwnedFd)>>,
}

impl Mirror {
    /// Opens the source.
    ///
    /// # Errors
    /// [`MirrorError`]; each is one line that says what to do.
    pub fn open(options: MirrorOptions) -> Result<Self, MirrorError> {
        Self::open_source(options, None)
    }

    /// As [`open`](Self::open), with a source that is open already.
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
        let most = max_inodes.into_iter().chain(lower.node_limit()).min();
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
            pruner: Pruner::new(most),
            mappable: Mappable::default(),
            rereads: Rereads::default(),
            searches: Arc::default(),
            pins: Pins::default(),
            passthrough_failed: Once::new(),
            inherited: Mutex::default(),
            inherited_nodes: Mutex::default(),
        })
    }

    /// The same source once more, as seen by somebody who knows nothing of it: with inodes and open files of its own.
    ///
    /// `options` are those it was opened with. Their path is not looked at.
    ///
    /// # Errors
    /// No descriptor, or the source is gone.
    pub fn anew(&self, options: MirrorOptions) -> Result<Self, MirrorError> {
        let failed = |errno| MirrorError::new(options.source.clone(), errno);
        let root = rustix::io::fcntl_dupfd_cloexec(self.lower.root(), 0).map_err(failed)?;
        let source = Source { root, attached: self.lower.attached(), whole: self.lower.is_whole() };
        Self::open_source(options, Some(source))
    }

    /// What a session for this file system asks of the kernel.
    ///
    /// The mount must have `default_permissions`: the kernel checks permissions, the daemon does not.
    pub fn config(&self) -> Config {
        let features = self.lower.features();
        // Not ATOMIC_O_TRUNC: with it the kernel has the file truncated by `open` before it looks whether the file is a
        // program that runs, so ETXTBSY comes too late.
        let mut wanted = Capabilities::HANDLE_KILLPRIV_V2
            | Capabilities::DONT_MASK
            | Capabilities::CACHE_SYMLINKS
            | Capabilities::EXPORT_SUPPORT
            | Capabilities::DO_READDIRPLUS;
        if features.acls {
            wanted |= Capabilities::POSIX_ACL;
        }
        if self.cache != CacheMode::Exclusive {
            // What a listing tells is soon asked for again: only where lookups follow. Kept for ever it is always worth it.
            wanted |= Capabilities::READDIRPLUS_AUTO;
            // Somebody else may write: pages are dropped when the modification time moved.
            wanted |= Capabilities::AUTO_INVAL_DATA;
        }
        let mut config = Config::new(Profile::Passthrough).request(wanted);
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

    /// The permission bits of the source itself; none where it does not tell.
    pub fn root_permissions(&self) -> u16 {
        rustix::fs::fstat(self.lower.root()).map_or(0, |root| (root.st_mode & 0o7777) as u16)
    }

    /// How the source is shown.
    pub fn describe(&self) -> Description {
        Description {
            source: self.source.clone(),
            private_view: self.lower.attached().is_none(),
            file_handles: self.lower.has_handles(),
            xattrs: self.lower.features().xattrs,
            acls: self.lower.features().acls,
            max_inodes: self.pruner.most(),
        }
    }

    /// How it is cached.
    pub fn caching(&self) -> &Caching {
        &self.caching
    }

    /// What was heard of changes that others made, where anybody listens.
    pub fn heard(&self) -> Option<Heard> {
        let watch = self.lower.watch().filter(|_| self.cache == CacheMode::Coherent)?;
        Some(Heard { events: watch.events(), overflows: watch.overflows() })
    }

    /// Whether every change of a node comes as a request of this mount, or is told to the kernel as it happens: what was
    /// said of it may be believed until then. Sizes and times of files that others write are not told.
    pub fn tells_of(&self, node: NodeId) -> bool {
        match self.cache {
            CacheMode::Exclusive => true,
            CacheMode::Coherent => {
                self.lower.hears_of_inodes() && self.lower.is_watched(node, self.lower.moment())
            }
            _ => false,
        }
    }

    /// Whether the source keeps access times by the rule of relatime (`mount(8)`), or not at all.
    pub fn keeps_access_times_loosely(&self) -> bool {
        self.lower.features().relatime
    }

    /// How much is held.
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

/// How a source is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The directory.
    pub source: PathBuf,
    /// Seen through a private copy of the mount tree: mounts below it are shown, and it may be mounted over itself.
    pub private_view: bool,
    /// Inodes cost no descriptor.
    pub file_handles: bool,
    /// Extended attributes are passed on.
    pub xattrs: bool,
    /// POSIX ACLs are in force.
    pub acls: bool,
    /// Inodes that the kernel is to hold at most.
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
            write!(f, ", without the mounts below it")?;
        }
        if !self.xattrs {
            write!(f, ", no extended attributes")?;
        } else if !self.acls {
            write!(f, ", no ACLs")?;
        }
        if let Some(most) = self.max_inodes {
            write!(f, ", at most {most} inodes")?;
        }
        Ok(())
    }
}
