//! Directories that take a name in any letters (`chattr +F`): there one name hides others, which no event tells.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::{Lower, sys};

/// Which directories of a file system take names in any letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseFolding {
    /// None.
    Exact,
    /// All.
    Any,
    /// Those with a flag.
    ByDirectory,
    /// The file system does not tell; names have to be tried.
    Untold,
}

/// FAT, exFAT, NTFS (two drivers), HFS, HFS+, AFFS, SMB (two).
const ANY: [i64; 9] =
    [0x4d44, 0x2011_bab0, 0x7366_746e, 0x5346_544e, 0x4244, 0x482b, 0xadff, 0xff53_4d42, 0xfe53_4d42];

/// ext4, F2FS, tmpfs, and overlay on one of them: only where the kernel says that it can.
const BY_DIRECTORY: [i64; 4] = [0xef53, 0xf2f5_2010, 0x0102_1994, 0x794c_7630];

/// bcachefs.
const ALWAYS_BY_DIRECTORY: i64 = 0xca45_1a4e;

/// FUSE, NFS, 9p, XFS, JFS, ZFS, vboxsf, vmhgfs, Lustre, AFS, eCryptfs: some directories of some of them.
const UNTOLD: [i64; 11] = [
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

/// Names of a directory among which one is looked for that can be tried.
const MAX_PROBED_NAMES: usize = 4096;

/// Where the kernel says so.
const SAID_BY: [&str; 3] =
    ["/sys/fs/ext4/features/casefold", "/sys/fs/f2fs/features/casefold", "/sys/fs/tmpfs/features/casefold"];

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_CASEFOLD_FL: u64 = 0x4000_0000;

impl CaseFolding {
    /// Of the file system of an open file (O_PATH will do).
    pub fn of(fd: BorrowedFd<'_>) -> Self {
        let magic = rustix::fs::fstatfs(fd).map_or(0, |statfs| statfs.f_type) & 0xffff_ffff;
        if ANY.contains(&magic) {
            return Self::Any;
        }
        if UNTOLD.contains(&magic) {
            return Self::Untold;
        }
        // Asked once: a daemon that was locked in does not see these paths any more.
        static FOLDS: LazyLock<bool> = LazyLock::new(|| SAID_BY.iter().any(|path| Path::new(path).exists()));
        let folds = *FOLDS;
        match magic == ALWAYS_BY_DIRECTORY || (BY_DIRECTORY.contains(&magic) && folds) {
            true => Self::ByDirectory,
            false => Self::Exact,
        }
    }
}

/// Directories remembered of each kind. More only forget each other, and are asked again.
const PLACES: usize = 4096;

/// What directories said lately, in 64 KiB whatever comes. It may forget, never invent.
#[derive(Debug)]
pub struct Asked {
    exact: Box<[AtomicU64]>,
    any: Box<[AtomicU64]>,
}

impl Default for Asked {
    fn default() -> Self {
        let places = || (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { exact: places(), any: places() }
    }
}

impl Asked {
    fn place(node: NodeId) -> usize {
        // Fibonacci hashing: ids come in runs.
        (node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACES.ilog2())) as usize
    }

    fn get(&self, node: NodeId) -> Option<bool> {
        let is_in = |places: &[AtomicU64]| places[Self::place(node)].load(Ordering::Acquire) == node.0;
        if is_in(&self.any) {
            return Some(true);
        }
        is_in(&self.exact).then_some(false)
    }

    fn note(&self, node: NodeId, any: bool) {
        self.forget(node);
        let places = if any { &self.any } else { &self.exact };
        places[Self::place(node)].store(node.0, Ordering::Release);
    }

    fn forget(&self, node: NodeId) {
        for places in [&self.any, &self.exact] {
            let place = &places[Self::place(node)];
            place.compare_exchange(node.0, 0, Ordering::AcqRel, Ordering::Relaxed).ok();
        }
    }
}

impl Lower {
    fn letters_of(&self, dir: NodeId) -> CaseFolding {
        let mount = if dir == NodeId::ROOT { Ok(0) } else { self.nodes.get(dir).map(|node| node.mount) };
        // Of what is not known nothing is to be kept.
        mount.map_or(CaseFolding::Any, |mount| self.mounts.letters(mount))
    }

    /// Whether names in a directory may be found by other letters than theirs. The flag is asked for once.
    pub fn ignores_case(&self, dir: NodeId) -> bool {
        match self.letters_of(dir) {
            CaseFolding::Exact | CaseFolding::Untold => false,
            CaseFolding::Any => true,
            CaseFolding::ByDirectory => self.letters.get(dir).unwrap_or_else(|| self.ask_letters(dir)),
        }
    }

    /// As [`ignores_case`](Self::ignores_case), and where the file system does not tell it is tried by a name in the
    /// directory. In doubt it does. A directory without a name that has letters passes for exact until one comes.
    pub fn may_ignore_case(&self, dir: NodeId) -> bool {
        if self.letters_of(dir) != CaseFolding::Untold {
            return self.ignores_case(dir);
        }
        if let Some(known) = self.letters.get(dir) {
            return known;
        }
        match self.try_letters(dir) {
            Ok(None) => false,
            Ok(Some(any)) => {
                self.letters.note(dir, any);
                any
            }
            Err(_) => true,
        }
    }

    /// Whether the file system of a directory does not tell.
    pub fn letters_are_untold(&self, dir: NodeId) -> bool {
        self.letters_of(dir) == CaseFolding::Untold
    }

    /// Looks for a name in its other case; `None` where there is none to try.
    fn try_letters(&self, dir: NodeId) -> Result<Option<bool>, Errno> {
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
                // Both are there, so they are two.
                return Ok(Some(false));
            }
            let known = match identity(name) {
                // Gone meanwhile.
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

    /// Whether a directory came to ignore case since it was asked, or may have. Only an empty one can, so it is asked
    /// when names come.
    pub(super) fn turned_to_ignore_case(&self, dir: NodeId) -> bool {
        self.letters_of(dir) == CaseFolding::ByDirectory
            && self.letters.get(dir) != Some(true)
            && self.ask_letters(dir)
    }

    /// Flags of an inode were set: `true` where names in it are to be looked up by any letters from now on.
    pub fn flags_changed(&self, id: NodeId) -> bool {
        self.letters.forget(id);
        self.turned_to_ignore_case(id)
    }

    fn ask_letters(&self, dir: NodeId) -> bool {
        let mut flags = [0u64; sys::IOCTL_ROOM / 8];
        let asked = self
            .reopen(dir, OFlags::RDONLY | OFlags::DIRECTORY)
            .and_then(|dir| sys::ioctl_buffer(dir.as_fd(), FS_IOC_GETFLAGS, &mut flags));
        let any = match asked {
            Ok(_) => u64::from(flags[0] as u32) & FS_CASEFOLD_FL != 0,
            Err(Errno::NOTTY | Errno::OPNOTSUPP) => false,
            // Asked again next time.
            Err(_) => return true,
        };
        self.letters.note(dir, any);
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_is_remembered() {
        let asked = Asked::default();
        assert_eq!(asked.get(NodeId(5)), None);
        asked.note(NodeId(5), false);
        assert_eq!(asked.get(NodeId(5)), Some(false));
        asked.note(NodeId(5), true);
        assert_eq!(asked.get(NodeId(5)), Some(true));
        asked.forget(NodeId(5));
        assert_eq!(asked.get(NodeId(5)), None);
    }

    #[test]
    fn nothing_is_said_of_others() {
        let asked = Asked::default();
        (1..10_000).for_each(|node| asked.note(NodeId(node), node % 2 == 0));
        for node in 1..10_000 {
            assert!(asked.get(NodeId(node)).is_none_or(|any| any == (node % 2 == 0)), "{node}");
            assert_eq!(asked.get(NodeId(node + 10_000)), None);
        }
    }
}
