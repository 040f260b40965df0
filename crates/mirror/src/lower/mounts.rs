//! The mounts below the source: through which files are opened again by handle.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::casefold::CaseFolding;
use super::codec::Codec;
use super::fd_store::FdStore;
use super::generated;
use super::handle::FileHandle;
use super::node_id;
use super::sys::ProcPath;
use super::watch::Watch;

/// A mount, or a part of one that is a device of its own (a subvolume of btrfs).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountKey {
    /// Number of the mount.
    pub id: u64,
    /// Device, as (major, minor).
    pub device: (u32, u32),
}

impl MountKey {
    /// Where a file is, by what `statx` said.
    pub fn of(stat: &Statx) -> Self {
        Self { id: stat.stx_mnt_id, device: (stat.stx_dev_major, stat.stx_dev_minor) }
    }
}

/// How the files of a mount are opened again.
#[derive(Debug, Clone)]
pub struct Opener {
    /// An open file of the mount.
    pub fd: Arc<OwnedFd>,
    /// How its handles are made, where that is known.
    pub codec: Option<Codec>,
}

/// File systems whose handles go stale while the file lives: FUSE (what its server forgot) and FAT (inodes that left
/// the cache).
const STALE_HANDLES: [i64; 2] = [0x6573_5546, 0x4d44];

#[derive(Debug)]
struct Mount {
    key: MountKey,
    /// `None` where handles do not work.
    opener: Option<Opener>,
    /// It shows the whole of its file system.
    whole: bool,
    /// The kernel makes the content of its files as they are read.
    generated: bool,
    letters: CaseFolding,
    /// Changes in its file system are told.
    watched: Option<WatchedMount>,
}

/// A mount whose file system is watched.
#[derive(Debug, Clone)]
pub(super) struct WatchedMount {
    pub(super) index: u16,
    pub(super) opener: Opener,
    fsid: u64,
}

/// Mounts seen so far, each with an index that nodes keep.
#[derive(Default)]
pub struct Mounts {
    seen: RwLock<Vec<Mount>>,
    watch: Option<Arc<Watch>>,
    keeper: OnceLock<Arc<dyn FdStore>>,
}

impl fmt::Debug for Mounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mounts").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Mounts {
    /// No mounts yet; those to come are watched where that can be.
    pub fn new(watch: Option<Arc<Watch>>) -> Self {
        Self { watch, ..Self::default() }
    }

    /// Has mounts held that ids speak of: their indices are to be the same for who goes on.
    pub fn keep_with(&self, keeper: Arc<dyn FdStore>) {
        let _ = self.keeper.set(keeper);
    }

    /// Gives a mount the index that it had for an earlier engine; indices in between stay unused.
    ///
    /// # Errors
    /// Those of `statx(2)`. EEXIST where the index is taken.
    pub fn restore(&self, index: u16, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, super::STAT)?;
        if self.len() > usize::from(index) {
            return Err(Errno::EXIST);
        }
        let unused = |index| MountKey { id: u64::MAX - index as u64, device: (0, 0) };
        let none = |index| Mount {
            key: unused(index),
            opener: None,
            whole: false,
            generated: false,
            letters: CaseFolding::Any,
            watched: None,
        };
        let mut seen = self.seen.write();
        let length = seen.len();
        seen.extend((length..usize::from(index)).map(none));
        drop(seen);
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        self.index(MountKey::of(&stat), file, kind, stat.stx_ino).map(drop)
    }

    /// The index of a mount of which `fd` is a file. One not seen before is tried for handles.
    ///
    /// # Errors
    /// ENFILE with more than 65,535 mounts.
    pub fn index(&self, key: MountKey, fd: BorrowedFd<'_>, kind: FileType, ino: u64) -> Result<u16, Errno> {
        let position = |seen: &[Mount]| seen.iter().position(|mount| mount.key == key);
        if let Some(index) = position(&self.seen.read()) {
            return Ok(index as u16);
        }
        let mut opener = probe(fd, kind, ino);
        let whole = is_whole(fd);
        let mut seen = self.seen.write();
        if let Some(index) = position(&seen) {
            return Ok(index as u16);
        }
        let index = u16::try_from(seen.len()).map_err(|_| Errno::NFILE)?;
        if let Ok(opener) = &mut opener
            && index > 0
        {
            // Indices are those of this mount of the mirror. A handle from another one may name another file system's
            // inode, but for the generation: counted from zero, as by btrfs, it says too little.
            opener.codec = opener.codec.filter(|codec| !matches!(codec, Codec::Btrfs { .. }));
            if opener.codec.is_some()
                && index <= node_id::MOUNTS
                && let Some(keeper) = self.keeper.get()
            {
                keeper.hold_mount(index, opener.fd.as_fd());
            }
        }
        let watched = opener.as_ref().ok().and_then(|opener| self.start_watch(index, opener));
        match &opener {
            Ok(Opener { codec, .. }) => {
                tracing::debug!(mount = key.id, ?codec, "files are reopened by handle")
            }
            Err(errno) => {
                tracing::info!(mount = key.id, %errno, "no file handles here: a descriptor is held per inode")
            }
        }
        let (generated, letters) = (generated::is_generated(fd), CaseFolding::of(fd));
        seen.push(Mount { key, opener: opener.ok(), whole, generated, letters, watched });
        Ok(index)
    }

    /// How files of a mount are opened again, if by handle.
    pub fn opener(&self, index: u16) -> Option<Opener> {
        self.seen.read().get(usize::from(index))?.opener.clone()
    }

    /// Whether there is nothing on a mount's file system that it does not show. Any doubt is a no.
    pub fn is_whole(&self, index: u16) -> bool {
        self.seen.read().get(usize::from(index)).is_some_and(|mount| mount.whole)
    }

    /// Whether the files of a mount are to be read without the page cache.
    pub fn is_generated(&self, index: u16) -> bool {
        self.seen.read().get(usize::from(index)).is_some_and(|mount| mount.generated)
    }

    /// Which directories of a mount take names in any letters.
    pub fn letters(&self, index: u16) -> CaseFolding {
        self.seen.read().get(usize::from(index)).map_or(CaseFolding::Any, |mount| mount.letters)
    }

    /// Whether a file is in the mount seen first: that of the source itself.
    pub fn is_first(&self, stat: &Statx) -> bool {
        self.seen.read().first().is_some_and(|mount| mount.key == MountKey::of(stat))
    }

    /// Changes from now on are told. What was read before may be out of date by then: answers with it are made to know.
    fn start_watch(&self, index: u16, opener: &Opener) -> Option<WatchedMount> {
        let watch = self.watch.as_ref()?;
        let group = watch.file_systems()?;
        let started = group.watch(opener.fd.as_fd()).and_then(|()| rustix::fs::fstatvfs(&opener.fd));
        watch.stamp_all();
        match started {
            // Without a number events could not be told from those of others.
            Ok(statvfs) if statvfs.f_fsid != 0 => {
                Some(WatchedMount { index, opener: opener.clone(), fsid: statvfs.f_fsid })
            }
            result => {
                let errno = result.err().unwrap_or(Errno::NODEV);
                tracing::info!(%errno, "changes by others in one of the mounts are not told: it is cached for a second");
                None
            }
        }
    }

    /// Whether changes in a mount's file system are told.
    pub fn is_watched(&self, index: u16) -> bool {
        self.seen.read().get(usize::from(index)).is_some_and(|mount| mount.watched.is_some())
    }

    /// The mounts of a file system that is watched: events do not tell by which one.
    pub(super) fn watched(&self, fsid: u64) -> Vec<WatchedMount> {
        let seen = self.seen.read();
        let watched = seen.iter().filter_map(|mount| mount.watched.as_ref());
        watched.filter(|mount| mount.fsid == fsid).cloned().collect()
    }

    /// Asks for what is to be told once more: it became more.
    pub fn watch_again(&self) {
        let Some(group) = self.watch.as_ref().and_then(|watch| watch.file_systems()) else { return };
        for mount in self.seen.read().iter().filter_map(|mount| mount.watched.as_ref()) {
            if let Err(errno) = group.watch(mount.opener.fd.as_fd()) {
                tracing::warn!(%errno, "the end of writing by others is not told");
            }
        }
    }

    /// An open file of each mount that has one.
    pub fn fds(&self) -> Vec<Arc<OwnedFd>> {
        self.seen.read().iter().filter_map(|mount| Some(mount.opener.as_ref()?.fd.clone())).collect()
    }

    /// Mounts seen so far.
    pub fn len(&self) -> usize {
        self.seen.read().len()
    }

    /// No mount was seen yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Whether a file is the root of a mount, and that the root of its file system, where that has a number that is known.
/// (A look at where else it is mounted could lead through the mirror's own mount.)
fn is_whole(fd: BorrowedFd<'_>) -> bool {
    // tmpfs; ext2, ext3, ext4.
    const ROOTS: [(i64, u64); 2] = [(0x0102_1994, 1), (0xef53, 2)];
    let Ok(magic) = rustix::fs::fstatfs(fd).map(|statfs| statfs.f_type) else { return false };
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO).is_ok_and(|stat| {
        stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) && ROOTS.contains(&(magic, stat.stx_ino))
    })
}

/// Opens a file of the mount, and opens it once more by its handle, to see that both work.
fn probe(fd: BorrowedFd<'_>, kind: FileType, ino: u64) -> Result<Opener, Errno> {
    let magic = rustix::fs::fstatfs(fd)?.f_type;
    if STALE_HANDLES.contains(&magic) {
        return Err(Errno::OPNOTSUPP);
    }
    let handle = FileHandle::of(fd)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let mount = match kind {
        FileType::Directory => rustix::fs::openat(fd, c".", flags | OFlags::DIRECTORY, Mode::empty())?,
        FileType::RegularFile => rustix::fs::openat(CWD, ProcPath::new(fd).as_cstr(), flags, Mode::empty())?,
        // Opening a device or a pipe has effects of its own.
        _ => return Err(Errno::OPNOTSUPP),
    };
    handle.open(mount.as_fd(), OFlags::PATH)?;
    Ok(Opener { fd: Arc::new(mount), codec: Codec::of(&handle, ino).map(|(codec, _)| codec) })
}
