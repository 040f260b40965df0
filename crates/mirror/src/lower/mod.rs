//! The engine: a directory tree addressed by node ids, independent of requests, sessions and kernel caches. Its
//! comments call the kernel that holds these ids the client.

pub mod bind_mount;
mod casefold;
mod codec;
mod component;
mod credentials;
pub(crate) mod devices;
mod fd_cache;
pub(crate) mod fd_store;
mod features;
mod generated;
mod handle;
mod hints;
mod identity;
pub(crate) mod idmap;
mod limits;
pub mod listing;
mod mounts;
mod no_open;
mod node;
pub(crate) mod node_id;
pub mod open_files;
mod open_inode;
mod opener;
mod ops;
mod path;
mod read_times;
#[cfg(test)]
mod reconnect_tests;
pub(crate) mod resume;
pub(crate) mod shares;
pub(crate) mod source;
mod sys;
#[cfg(test)]
mod tests;
mod user_namespace;
pub(crate) mod watch;

use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use shunt_fuse::{NodeId, NodeTable};

pub use component::Component;
pub(crate) use credentials::Caller;
pub use features::Features;
pub use idmap::IdMap;
pub(crate) use idmap::IdMaps;
pub(crate) use ops::{Changes, NewTime, XattrAnswer, seek, sync};
pub use ops::{Found, Opening};
pub use read_times::ReadTimes;

use credentials::AsMember;
use devices::{Devices, Numbered};
use fd_cache::FdCache;
use fd_store::FdStoreState;
use handle::FileHandle;
use hints::Hints;
use limits::Limits;
use listing::{Listing, Listings};
use mounts::{MountKey, Mounts};
use no_open::NoOpenFiles;
use node::{Location, Node};
use open_files::{Handles, OpenFiles};
use shares::Shares;
use source::Source;
use watch::Watch;

/// The `statx` mask of all stat calls.
const STAT: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID);

/// Options of a [`Lower`].
#[derive(Debug, Clone, Default)]
pub(crate) struct LowerOptions {
    /// The source directory.
    pub source: PathBuf,
    /// Refuse every change with EROFS.
    pub read_only: bool,
    /// Effect of reads on access times.
    pub read_times: ReadTimes,
    /// The client holds ids of an earlier engine of the same source, which are trusted: inodes are served even if their
    /// path below the source cannot be proved. Never set this where ids may be forged, as by the kernel of a guest.
    pub resumes: bool,
    /// Mapping of user and group ids.
    pub ids: IdMaps,
    /// The watch that receives changes made by others.
    pub watch: Option<Arc<Watch>>,
}

/// A directory tree whose inodes are named by [`NodeId`].
///
/// Every operation may be called from any thread, and prepares the credentials of that thread first.
pub struct Lower {
    root: Arc<OwnedFd>,
    root_ino: u64,
    attached: Option<Errno>,
    /// The source is the root of its file system, and shows all of it.
    is_fs_root: bool,
    resumes: bool,
    read_only: bool,
    /// Files are opened with O_NOATIME, because the view has no mount of its own with that option.
    opens_noatime: bool,
    /// Some files may be generated on read.
    may_generate: bool,
    ids: IdMaps,
    features: Features,
    limits: Limits,
    mounts: Mounts,
    watch: Option<Arc<Watch>>,
    /// Handle of the root: used only to recognise the root in events.
    root_handle: Option<FileHandle>,
    devices: Devices,
    nodes: NodeTable<Node>,
    hints: Hints,
    case_flags: casefold::CaseFlagCache,
    /// Directories recently used for lookups.
    dirs: FdCache,
    /// Inodes that lost their last name.
    unlinked: FdCache,
    files: OpenFiles,
    no_open: NoOpenFiles,
    open_dirs: Handles<Mutex<Listing>>,
    shares: Shares,
    listings: Listings,
    fd_store: FdStoreState,
}

/// Resource use of a [`Lower`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Inodes known to the client, without the root.
    pub nodes: u64,
    /// Size of the node table in bytes.
    pub node_bytes: u64,
    /// Open files.
    pub files: u64,
    /// Open directories: those of callers, those cached for lookups, and those kept for listings.
    pub dirs: u64,
    /// Unlinked inodes held by descriptor.
    pub unlinked: u64,
}

/// Reports whether the source is on tmpfs, which keeps all its names in memory: every file has a path.
fn is_tmpfs(root: &OwnedFd) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    rustix::fs::fstatfs(root).is_ok_and(|statfs| statfs.f_type == TMPFS)
}

/// Returns a random number that is part of all ids, so that an id issued by an earlier daemon is not valid in this one.
fn epoch() -> u32 {
    RandomState::new().hash_one(0) as u32
}

impl Lower {
    /// Creates an unlinked file in the source for feature tests, if that is supported and nothing is read-only.
    pub(crate) fn create_tmpfile(&self) -> Option<OwnedFd> {
        if self.read_only {
            return None;
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::openat(&*self.root, c".", flags, Mode::RUSR | Mode::WUSR).ok()
    }

    /// Opens the source directory of the options.
    #[cfg(test)]
    pub(crate) fn open(options: LowerOptions) -> Result<Self, Errno> {
        let source = Source::open(&options.source, options.read_only, options.read_times)?;
        Self::open_source(options, source)
    }

    /// Opens a source whose root is already open: its path is not resolved. Raises the soft limit of open descriptors to
    /// the hard limit.
    ///
    /// # Errors
    /// The error of `statx(2)` on the root.
    pub(crate) fn open_source(options: LowerOptions, source: Source) -> Result<Self, Errno> {
        let limits = Limits::of(limits::raise_descriptor_limit());
        let Source { root, attached, is_fs_root } = source;
        let root = Arc::new(root);
        let stat = rustix::fs::statx(&root, c"", AtFlags::EMPTY_PATH, STAT)?;
        let mounts = Mounts::new(options.watch.clone());
        let node = Node {
            ino: stat.stx_ino,
            mount: mounts.index(MountKey::of(&stat), root.as_fd(), FileType::Directory, stat.stx_ino)?,
            device: 0,
            kind: FileType::Directory,
            location: Location::Fd(root.clone()),
        };
        let no_open = limits.no_open(mounts.opener(0).is_some());
        Ok(Self {
            root_handle: FileHandle::of(root.as_fd()).ok(),
            watch: options.watch,
            root_ino: stat.stx_ino,
            attached,
            is_fs_root,
            resumes: options.resumes,
            read_only: options.read_only,
            may_generate: generated::is_below(&options.source),
            opens_noatime: attached.is_some() && options.read_times.never(),
            ids: options.ids,
            limits,
            mounts,
            devices: Devices::new((stat.stx_dev_major, stat.stx_dev_minor)),
            hints: Hints::new(attached.is_none() && !is_fs_root && !is_tmpfs(&root)),
            nodes: NodeTable::beginning_with(node, epoch()),
            case_flags: casefold::CaseFlagCache::default(),
            features: Features::of(&root),
            root,
            dirs: FdCache::new(limits.dirs),
            unlinked: FdCache::new(limits.unlinked),
            files: OpenFiles::default(),
            no_open: NoOpenFiles::new(no_open),
            open_dirs: Handles::default(),
            shares: Shares::default(),
            listings: Listings::new(limits.listings),
            fd_store: FdStoreState::default(),
        })
    }

    /// Returns the features of the source's file system.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Returns the O_PATH descriptor of the source's root.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Reports whether a file must be read and written without the page cache, which ends at the file size that the
    /// source reports.
    pub(crate) fn is_generated(&self, id: NodeId) -> bool {
        self.may_generate && self.node(id).is_ok_and(|node| self.mounts.is_generated(node.mount))
    }

    /// Reports whether the source may contain generated files.
    pub(crate) fn may_generate(&self) -> bool {
        self.may_generate
    }

    /// Reports whether the source is the root of its file system, and shows all of it.
    pub(crate) fn is_fs_root(&self) -> bool {
        self.is_fs_root
    }

    /// Returns why the view is not a private copy of the mount tree; `None` if it is.
    pub(crate) fn attached(&self) -> Option<Errno> {
        self.attached
    }

    /// Reports whether inodes of the source's own mount are opened by handle, so that none needs a descriptor.
    pub(crate) fn has_handles(&self) -> bool {
        self.mounts.opener(0).is_some()
    }

    /// Limit on known inodes, if each needs a descriptor.
    pub(crate) fn node_limit(&self) -> Option<u64> {
        (!self.has_handles()).then_some(self.limits.nodes)
    }

    /// Returns the memory that the engine uses.
    pub(crate) fn memory(&self) -> Memory {
        Memory {
            nodes: self.nodes.len(),
            node_bytes: self.nodes.memory() as u64,
            files: (self.files.len() + self.no_open.len()) as u64,
            dirs: (self.open_dirs.len() + self.dirs.len() + self.listings.len()) as u64,
            unlinked: self.unlinked.len() as u64,
        }
    }

    /// Number of known inodes, without the root.
    pub(crate) fn node_count(&self) -> u64 {
        self.nodes.len()
    }

    /// Returns up to `count` inodes that were not used recently.
    pub(crate) fn cold_nodes(&self, count: usize) -> Vec<NodeId> {
        self.nodes.cold(count)
    }

    /// Reports whether the client may hold inodes that are not in the node table.
    pub(crate) fn resumes(&self) -> bool {
        self.resumes
    }

    /// Calls `each` for every known inode, including the root.
    pub fn for_each_node(&self, mut each: impl FnMut(NodeId)) {
        each(NodeId::ROOT);
        self.nodes.for_each(each);
    }

    /// Drops `lookups` references of the client to a node. Unknown ids are ignored.
    pub fn forget(&self, id: NodeId, lookups: u64) {
        let Some(node) = self.nodes.forget(id, lookups) else { return };
        self.unlinked.remove(id);
        self.release_inode(id);
        self.no_open.forget(id);
        if node.kind == FileType::Directory {
            self.dirs.remove(id);
            if let Some(watch) = self.watch() {
                watch.forget(id, || self.nodes.get(id).is_err());
            }
            self.listings.forget(id);
        }
    }

    /// Reports whether the client holds a node.
    pub fn holds(&self, id: NodeId) -> bool {
        self.nodes.get(id).is_ok()
    }

    /// Keeps inode numbers stable across a takeover: see [`Devices::keep`].
    pub(crate) fn keep_devices(&self, known: &[Numbered], on_new: Box<dyn Fn(Numbered) + Send + Sync>) {
        self.devices.keep(known, on_new);
    }

    /// Maps a stat to the mount: inode number and owners.
    fn shown(&self, mut stat: Statx) -> Statx {
        let device = self.devices.index((stat.stx_dev_major, stat.stx_dev_minor));
        stat.stx_ino = Devices::shown_ino(device, stat.stx_ino);
        stat.stx_uid = self.ids.users.show(stat.stx_uid);
        stat.stx_gid = self.ids.groups.show(stat.stx_gid);
        stat
    }

    /// Maps the caller's ids to the source.
    fn stored(&self, caller: Caller) -> Caller {
        Caller {
            uid: self.ids.users.store(caller.uid),
            gid: self.ids.groups.store(caller.gid),
            group: caller.group.map(|group| self.ids.groups.store(group)),
            pid: caller.pid,
        }
    }

    /// Returns a guard under which the thread writes to `file` with the caller's membership in its group.
    fn as_member(&self, file: impl AsFd, caller: Caller) -> Result<AsMember, Errno> {
        AsMember::of(file, |group| caller.is_in(self.ids.groups.show(*group)))
    }

    /// Returns EROFS if changes are refused.
    fn writable(&self) -> Result<(), Errno> {
        if self.read_only { Err(Errno::ROFS) } else { Ok(()) }
    }
}
