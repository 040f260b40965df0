//! The mounts of the source, through which files are opened by handle.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use rustix::fs::{AtFlags, FileType, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::casefold::CaseFolding;
use super::codec::Codec;
use super::fd_store::FdStore;
use super::generated;
use super::node_id;
use super::opener::Opener;
use super::watch::{Watch, WatchedMount};

/// A mount, or a part of one with a device number of its own (a subvolume of btrfs).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MountKey {
    /// Mount id.
    pub id: u64,
    /// Device, as (major, minor).
    pub device: (u32, u32),
}

impl MountKey {
    /// Returns the mount of a file from its `statx` result.
    pub(super) fn of(stat: &Statx) -> Self {
        Self { id: stat.stx_mnt_id, device: (stat.stx_dev_major, stat.stx_dev_minor) }
    }
}

#[derive(Debug)]
struct Mount {
    key: MountKey,
    /// `None` if handles do not work.
    opener: Option<Opener>,
    /// Its root is the root of its file system.
    is_fs_root: bool,
    /// A pseudo file system: the kernel generates the contents of files on read.
    generated: bool,
    case_folding: CaseFolding,
    /// Set if change events of its file system are received.
    watched: Option<WatchedMount>,
}

/// All mounts seen, each with a stable index that nodes refer to.
#[derive(Default)]
pub(super) struct Mounts {
    seen: RwLock<Vec<Mount>>,
    watch: Option<Arc<Watch>>,
    store: OnceLock<Arc<dyn FdStore>>,
}

impl fmt::Debug for Mounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mounts").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Mounts {
    /// Creates an empty list. New mounts are watched if `watch` can do it.
    pub(super) fn new(watch: Option<Arc<Watch>>) -> Self {
        Self { watch, ..Self::default() }
    }

    /// Stores a descriptor of each mount that ids refer to, so that the next daemon can keep the indices.
    pub(super) fn set_fd_store(&self, store: Arc<dyn FdStore>) {
        let _ = self.store.set(store);
    }

    /// Assigns a mount the index that it had in an earlier engine; indices in between stay unused.
    ///
    /// # Errors
    /// The error of `statx(2)`; EEXIST if the index is taken.
    pub(super) fn restore(&self, index: u16, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, super::STAT)?;
        if self.len() > usize::from(index) {
            return Err(Errno::EXIST);
        }
        let unused = |index| MountKey { id: u64::MAX - index as u64, device: (0, 0) };
        let none = |index| Mount {
            key: unused(index),
            opener: None,
            is_fs_root: false,
            generated: false,
            case_folding: CaseFolding::Any,
            watched: None,
        };
        let mut seen = self.seen.write();
        let length = seen.len();
        seen.extend((length..usize::from(index)).map(none));
        drop(seen);
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        self.index(MountKey::of(&stat), file, kind, stat.stx_ino).map(drop)
    }

    /// Returns the index of the mount of the file `fd`. A new mount is probed for file handles.
    ///
    /// # Errors
    /// ENFILE with more than 65,535 mounts.
    pub(super) fn index(
        &self,
        key: MountKey,
        fd: BorrowedFd<'_>,
        kind: FileType,
        ino: u64,
    ) -> Result<u16, Errno> {
        let position = |seen: &[Mount]| seen.iter().position(|mount| mount.key == key);
        if let Some(index) = position(&self.seen.read()) {
            return Ok(index as u16);
        }
        let mut opener = Opener::probe(fd, kind, ino);
        let is_fs_root = is_fs_root(fd);
        let mut seen = self.seen.write();
        if let Some(index) = position(&seen) {
            return Ok(index as u16);
        }
        let index = u16::try_from(seen.len()).map_err(|_| Errno::NFILE)?;
        if let Ok(opener) = &mut opener
            && index > 0
        {
            // Indices are specific to this mount of the mirror. A handle from another mirror may address an inode of a
            // different file system; only the generation tells them apart. A generation counted from zero, as by btrfs,
            // is too weak for that.
            opener.codec = opener.codec.filter(|codec| !matches!(codec, Codec::Btrfs { .. }));
            if opener.codec.is_some()
                && index <= node_id::MAX_ENCODED_MOUNTS
                && let Some(store) = self.store.get()
            {
                store.store_mount(index, opener.fd.as_fd());
            }
        }
        let watched = opener.as_ref().ok().and_then(|opener| self.start_watch(index, opener));
        match &opener {
            Ok(Opener { codec, .. }) => {
                tracing::debug!(mount = key.id, ?codec, "inodes are reopened by file handle")
            }
            Err(errno) => {
                tracing::info!(mount = key.id, %errno, "no file handles in this mount: holding one descriptor per inode")
            }
        }
        let (generated, case_folding) = (generated::is_generated(fd), CaseFolding::of(fd));
        seen.push(Mount { key, opener: opener.ok(), is_fs_root, generated, case_folding, watched });
        Ok(index)
    }

    /// Returns the means of opening files of a mount by handle, if handles work.
    pub(super) fn opener(&self, index: u16) -> Option<Opener> {
        self.seen.read().get(usize::from(index))?.opener.clone()
    }

    /// Reports whether the root of a mount is the root of its file system; `false` in doubt.
    pub(super) fn is_fs_root(&self, index: u16) -> bool {
        self.seen.read().get(usize::from(index)).is_some_and(|mount| mount.is_fs_root)
    }

    /// Reports whether the files of a mount must be read without the page cache.
    pub(super) fn is_generated(&self, index: u16) -> bool {
        self.seen.read().get(usize::from(index)).is_some_and(|mount| mount.generated)
    }

    /// Returns which directories of a mount are case-insensitive.
    pub(super) fn case_folding(&self, index: u16) -> CaseFolding {
        self.seen.read().get(usize::from(index)).map_or(CaseFolding::Any, |mount| mount.case_folding)
    }

    /// Reports whether a file is on the first mount, that of the source itself.
    pub(super) fn is_first(&self, stat: &Statx) -> bool {
        self.seen.read().first().is_some_and(|mount| mount.key == MountKey::of(stat))
    }

    /// Starts watching a mount. Data read before may change unnoticed, so all names and inodes are stamped as changed.
    fn start_watch(&self, index: u16, opener: &Opener) -> Option<WatchedMount> {
        let watch = self.watch.as_ref()?;
        let group = watch.file_systems()?;
        let started = group.watch(opener.fd.as_fd()).and_then(|()| rustix::fs::fstatvfs(&opener.fd));
        watch.stamp_all();
        match started {
            // Without an fsid, events could not be attributed to this file system.
            Ok(statvfs) if statvfs.f_fsid != 0 => {
                Some(WatchedMount { index, opener: opener.clone(), fsid: statvfs.f_fsid })
            }
            result => {
                let errno = result.err().unwrap_or(Errno::NODEV);
                tracing::info!(%errno, "cannot watch a mount below the source: its names and attributes are cached for one second");
                None
            }
        }
    }

    /// Reports whether change events of a mount's file system are received.
    pub(super) fn is_watched(&self, index: u16) -> bool {
        self.seen.read().get(usize::from(index)).is_some_and(|mount| mount.watched.is_some())
    }

    /// Returns the watched mounts of a file system: events do not name the mount.
    pub(super) fn watched(&self, fsid: u64) -> Vec<WatchedMount> {
        let seen = self.seen.read();
        let watched = seen.iter().filter_map(|mount| mount.watched.as_ref());
        watched.filter(|mount| mount.fsid == fsid).cloned().collect()
    }

    /// Updates the marks after the set of watched events has grown.
    pub(super) fn watch_again(&self) {
        let Some(group) = self.watch.as_ref().and_then(|watch| watch.file_systems()) else { return };
        for mount in self.seen.read().iter().filter_map(|mount| mount.watched.as_ref()) {
            if let Err(errno) = group.watch(mount.opener.fd.as_fd()) {
                tracing::warn!(%errno, "cannot watch a mount for files that others close after writing");
            }
        }
    }

    /// Returns an open file of each mount that has one.
    pub(super) fn fds(&self) -> Vec<Arc<OwnedFd>> {
        self.seen.read().iter().filter_map(|mount| Some(mount.opener.as_ref()?.fd.clone())).collect()
    }

    /// Number of mounts seen.
    pub(super) fn len(&self) -> usize {
        self.seen.read().len()
    }
}

/// Reports whether a file is the root of a mount and of its file system, for file systems with a fixed root inode
/// number. (Checking where else it is mounted could lead through the mirror's own mount.)
fn is_fs_root(fd: BorrowedFd<'_>) -> bool {
    // tmpfs; ext2, ext3, ext4.
    const ROOTS: [(i64, u64); 2] = [(0x0102_1994, 1), (0xef53, 2)];
    let Ok(magic) = rustix::fs::fstatfs(fd).map(|statfs| statfs.f_type) else { return false };
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO).is_ok_and(|stat| {
        stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) && ROOTS.contains(&(magic, stat.stx_ino))
    })
}
