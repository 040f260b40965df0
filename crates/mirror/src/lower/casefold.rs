//! Case-insensitive directories (`chattr +F`): a file has many spellings there, and an event reports only one of them.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::{Lower, sys};

/// The set of case-insensitive directories of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CaseFolding {
    /// None.
    Exact,
    /// All.
    Any,
    /// Directories with the casefold flag.
    ByDirectory,
    /// The file system does not report it; names have to be probed.
    Unreported,
}

/// FAT, exFAT, NTFS (two drivers), HFS, HFS+, AFFS, SMB (two).
const ANY: [i64; 9] =
    [0x4d44, 0x2011_bab0, 0x7366_746e, 0x5346_544e, 0x4244, 0x482b, 0xadff, 0xff53_4d42, 0xfe53_4d42];

/// ext4, F2FS, tmpfs, and overlay on one of them: only if the kernel supports casefolding.
const BY_DIRECTORY: [i64; 4] = [0xef53, 0xf2f5_2010, 0x0102_1994, 0x794c_7630];

/// bcachefs.
const ALWAYS_BY_DIRECTORY: i64 = 0xca45_1a4e;

/// FUSE, NFS, 9p, XFS, JFS, ZFS, vboxsf, vmhgfs, Lustre, AFS, eCryptfs: some directories of some of them.
const UNREPORTED: [i64; 11] = [
    0x6573_5546,
    0x6969,
    0x0102_1997,
    0x5846_5342,
    0x3153_464a,
    0x2fc1_2fc1,
    0x786f_4256,
    0xbacb_acbc,
    0x0bd0_0bd0,
    0x5346_414f,
    0xf15f,
];

/// Limit on the names of a directory read to find one that can be probed.
const MAX_PROBED_NAMES: usize = 4096;

/// Files by which the kernel announces casefolding support.
const FEATURE_FILES: [&str; 3] =
    ["/sys/fs/ext4/features/casefold", "/sys/fs/f2fs/features/casefold", "/sys/fs/tmpfs/features/casefold"];

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_CASEFOLD_FL: u64 = 0x4000_0000;

impl CaseFolding {
    /// Detects the behaviour of the file system of an open file (O_PATH suffices).
    pub(super) fn of(fd: BorrowedFd<'_>) -> Self {
        let magic = rustix::fs::fstatfs(fd).map_or(0, |statfs| statfs.f_type) & 0xffff_ffff;
        if ANY.contains(&magic) {
            return Self::Any;
        }
        if UNREPORTED.contains(&magic) {
            return Self::Unreported;
        }
        // Checked once: a sandboxed daemon no longer sees these paths.
        static FOLDS: LazyLock<bool> =
            LazyLock::new(|| FEATURE_FILES.iter().any(|path| Path::new(path).exists()));
        let folds = *FOLDS;
        match magic == ALWAYS_BY_DIRECTORY || (BY_DIRECTORY.contains(&magic) && folds) {
            true => Self::ByDirectory,
            false => Self::Exact,
        }
    }
}

/// Cached directories of each kind. Collisions overwrite, and the directory is queried again.
const SLOTS: usize = 4096;

/// A lossy cache of query results, 64 KiB in total. It may forget a directory, but never invents a result.
#[derive(Debug)]
pub(super) struct CaseFlagCache {
    exact: Box<[AtomicU64]>,
    any: Box<[AtomicU64]>,
}

impl Default for CaseFlagCache {
    fn default() -> Self {
        let slots = || (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self { exact: slots(), any: slots() }
    }
}

impl CaseFlagCache {
    fn slot(node: NodeId) -> usize {
        // Fibonacci hashing, because ids are often consecutive.
        (node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOTS.ilog2())) as usize
    }

    fn get(&self, node: NodeId) -> Option<bool> {
        let is_in = |slots: &[AtomicU64]| slots[Self::slot(node)].load(Ordering::Acquire) == node.0;
        if is_in(&self.any) {
            return Some(true);
        }
        is_in(&self.exact).then_some(false)
    }

    fn note(&self, node: NodeId, any: bool) {
        self.forget(node);
        let slots = if any { &self.any } else { &self.exact };
        slots[Self::slot(node)].store(node.0, Ordering::Release);
    }

    fn forget(&self, node: NodeId) {
        for slots in [&self.any, &self.exact] {
            let slot = &slots[Self::slot(node)];
            slot.compare_exchange(node.0, 0, Ordering::AcqRel, Ordering::Relaxed).ok();
        }
    }
}

impl Lower {
    fn case_folding_of(&self, dir: NodeId) -> CaseFolding {
        let mount = if dir == NodeId::ROOT { Ok(0) } else { self.nodes.get(dir).map(|node| node.mount) };
        // An unknown directory is treated as case-insensitive, so that nothing of it is cached.
        mount.map_or(CaseFolding::Any, |mount| self.mounts.case_folding(mount))
    }

    /// Reports whether a directory finds names by another case. The flag of a directory is read once.
    pub(crate) fn ignores_case(&self, dir: NodeId) -> bool {
        match self.case_folding_of(dir) {
            CaseFolding::Exact | CaseFolding::Unreported => false,
            CaseFolding::Any => true,
            CaseFolding::ByDirectory => self.case_flags.get(dir).unwrap_or_else(|| self.read_case_flag(dir)),
        }
    }

    /// Reports whether a directory finds names by another case. On file systems that do not report case folding it
    /// probes a name in the directory. Doubt counts as case-insensitive. A directory counts as case-sensitive while no name in it has
    /// letters.
    pub fn may_ignore_case(&self, dir: NodeId) -> bool {
        if self.case_folding_of(dir) != CaseFolding::Unreported {
            return self.ignores_case(dir);
        }
        if let Some(known) = self.case_flags.get(dir) {
            return known;
        }
        match self.probe_case(dir) {
            Ok(None) => false,
            Ok(Some(any)) => {
                self.case_flags.note(dir, any);
                any
            }
            Err(_) => true,
        }
    }

    /// Reports whether the file system of a directory does not report case folding.
    pub fn is_case_folding_unreported(&self, dir: NodeId) -> bool {
        self.case_folding_of(dir) == CaseFolding::Unreported
    }

    /// Probes a name in its other case; `None` if the directory has no suitable name.
    fn probe_case(&self, dir: NodeId) -> Result<Option<bool>, Errno> {
        let dir = self.reopen(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let entries = rustix::fs::Dir::read_from(&dir)?.take(MAX_PROBED_NAMES);
        let names: Vec<_> =
            entries.map(|entry| Ok(entry?.file_name().to_owned())).collect::<Result<_, Errno>>()?;
        let identity = |name: &CStr| {
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
            let stat = rustix::fs::statx(&dir, name, flags, StatxFlags::INO)?;
            Ok::<_, Errno>((stat.stx_ino, stat.stx_dev_major, stat.stx_dev_minor))
        };
        for name in names.iter().filter(|name| name.to_bytes().iter().any(u8::is_ascii_alphabetic)) {
            let swap = |byte: &u8| byte ^ if byte.is_ascii_alphabetic() { 0x20 } else { 0 };
            let Ok(swapped) = CString::new(name.to_bytes().iter().map(swap).collect::<Vec<u8>>()) else {
                continue;
            };
            if names.contains(&swapped) {
                // Both spellings exist, so they are two files.
                return Ok(Some(false));
            }
            let known = match identity(name) {
                // The name was removed meanwhile.
                Err(Errno::NOENT) => continue,
                known => known?,
            };
            return match identity(&swapped) {
                Err(Errno::NOENT) => Ok(Some(false)),
                other => Ok(Some(other? == known)),
            };
        }
        Ok(None)
    }

    /// Reports whether a directory has, or may have, become case-insensitive since it was queried. Only an empty
    /// directory can, so this is checked when names are added.
    pub(super) fn became_case_insensitive(&self, dir: NodeId) -> bool {
        self.case_folding_of(dir) == CaseFolding::ByDirectory
            && self.case_flags.get(dir) != Some(true)
            && self.read_case_flag(dir)
    }

    /// Called when flags of an inode were set: returns `true` if the directory is now case-insensitive.
    pub(crate) fn flags_changed(&self, id: NodeId) -> bool {
        self.case_flags.forget(id);
        self.became_case_insensitive(id)
    }

    fn read_case_flag(&self, dir: NodeId) -> bool {
        let mut flags = [0u64; sys::MAX_IOCTL_BYTES / 8];
        let read = self
            .reopen(dir, OFlags::RDONLY | OFlags::DIRECTORY)
            .and_then(|dir| sys::ioctl_buffer(dir.as_fd(), FS_IOC_GETFLAGS, &mut flags));
        let any = match read {
            Ok(_) => u64::from(flags[0] as u32) & FS_CASEFOLD_FL != 0,
            Err(Errno::NOTTY | Errno::OPNOTSUPP) => false,
            // Query it again next time.
            Err(_) => return true,
        };
        self.case_flags.note(dir, any);
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_returns_the_last_noted_flag() {
        let cache = CaseFlagCache::default();
        assert_eq!(cache.get(NodeId(5)), None);
        cache.note(NodeId(5), false);
        assert_eq!(cache.get(NodeId(5)), Some(false));
        cache.note(NodeId(5), true);
        assert_eq!(cache.get(NodeId(5)), Some(true));
        cache.forget(NodeId(5));
        assert_eq!(cache.get(NodeId(5)), None);
    }

    #[test]
    fn get_of_other_directories_returns_none() {
        let cache = CaseFlagCache::default();
        (1..10_000).for_each(|node| cache.note(NodeId(node), node % 2 == 0));
        for node in 1..10_000 {
            assert!(cache.get(NodeId(node)).is_none_or(|any| any == (node % 2 == 0)), "{node}");
            assert_eq!(cache.get(NodeId(node + 10_000)), None);
        }
    }
}
