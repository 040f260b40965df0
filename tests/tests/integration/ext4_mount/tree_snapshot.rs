//! Snapshot of everything that programs can see of a tree.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, SeekFrom, StatxFlags};

/// Visible state of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeState {
    inode: u64,
    mode: u32,
    owner: (u32, u32),
    links: u64,
    size: u64,
    blocks: u64,
    block_size: u64,
    device: u64,
    times: [(i64, i64); 2],
    born: Option<(i64, u32)>,
    /// Checksum of the content.
    content: u64,
    /// Offsets at which data and holes begin.
    holes: Vec<u64>,
    xattrs: BTreeMap<CString, Vec<u8>>,
    /// Flags as shown by `lsattr`.
    flags: Option<u32>,
    version: Option<u32>,
    listed: Vec<(std::ffi::OsString, u64, FileType)>,
}

impl InodeState {
    /// Reports whether this equals the kernel's view. If dentries have no type, the kernel lists them as unknown, which FUSE
    /// cannot.
    pub fn is(&self, kernel: &Self) -> bool {
        let unknown = kernel.listed.iter().all(|(.., kind)| *kind == FileType::Unknown);
        let names = |seen: &Self| seen.listed.iter().map(|(name, ..)| name.clone()).collect::<Vec<_>>();
        let listed = if unknown { names(self) == names(kernel) } else { self.listed == kernel.listed };
        let without = |seen: &Self| Self { listed: Vec::new(), ..seen.clone() };
        listed && without(self) == without(kernel)
    }
}

pub fn tree(root: &Path) -> BTreeMap<PathBuf, InodeState> {
    let mut tree = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(path) = left.pop() {
        let seen = see(&root.join(&path));
        if seen.mode & 0o170_000 == 0o040_000 {
            left.extend(seen.listed.iter().map(|(name, ..)| path.join(name)));
        }
        tree.insert(path, seen);
    }
    tree
}

fn see(path: &Path) -> InodeState {
    let stat = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let kind = stat.file_type();
    let born = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).unwrap();
    let has_born = born.stx_mask & StatxFlags::BTIME.bits() != 0;
    let file = (kind.is_file() || kind.is_dir()).then(|| File::open(path).unwrap());
    // Before the file is read: the kernel treats cached pages of unwritten extents as data.
    let holes = if kind.is_file() { holes(file.as_ref().unwrap(), stat.size()) } else { Vec::new() };
    let mut listed = match kind.is_dir() {
        true => shunt_tests::getdents::list(path).into_iter().map(|e| (e.name, e.ino, e.kind)).collect(),
        false => Vec::new(),
    };
    // The order depends on the file system.
    listed.sort_by(|a, b| a.0.cmp(&b.0));
    InodeState {
        inode: stat.ino(),
        mode: stat.mode(),
        owner: (stat.uid(), stat.gid()),
        links: stat.nlink(),
        size: stat.size(),
        blocks: stat.blocks(),
        block_size: stat.blksize(),
        device: if kind.is_block_device() || kind.is_char_device() { stat.rdev() } else { 0 },
        times: [(stat.mtime(), stat.mtime_nsec()), (stat.ctime(), stat.ctime_nsec())],
        born: has_born.then_some((born.stx_btime.tv_sec, born.stx_btime.tv_nsec)),
        content: match () {
            () if kind.is_file() => sum(&fs::read(path).unwrap()),
            () if kind.is_symlink() => sum(fs::read_link(path).unwrap().as_os_str().as_bytes()),
            () => 0,
        },
        holes,
        xattrs: xattrs(path),
        flags: file.as_ref().map(|file| ask(file, 0x8008_6601)),
        version: file.as_ref().map(|file| ask(file, 0x8008_7601)),
        listed,
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn holes(file: &File, size: u64) -> Vec<u64> {
    let mut found = vec![];
    let mut at = 0;
    while at < size {
        let Ok(data) = rustix::fs::seek(file, SeekFrom::Data(at)) else { break };
        at = rustix::fs::seek(file, SeekFrom::Hole(data)).unwrap();
        found.extend([data, at]);
    }
    found
}

fn xattrs(path: &Path) -> BTreeMap<CString, Vec<u8>> {
    let mut names = vec![0; 65536];
    let length = rustix::fs::llistxattr(path, &mut names).unwrap();
    let names = names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let name = CString::new(name).unwrap();
        let mut value = vec![0; 65536];
        let length = rustix::fs::lgetxattr(path, &name, &mut value).unwrap();
        value.truncate(length);
        (name, value)
    };
    names.map(value).collect()
}

fn ask(file: &File, command: u64) -> u32 {
    use std::os::fd::AsRawFd as _;
    let mut answer = [0_u32; 2];
    // SAFETY: both commands write at most one long, for which there is space.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), command, answer.as_mut_ptr()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    answer[0]
}

/// Returns the figures of `df`.
pub fn space(path: &Path) -> [u64; 7] {
    let seen = rustix::fs::statvfs(path).unwrap();
    [seen.f_blocks, seen.f_bfree, seen.f_bavail, seen.f_files, seen.f_ffree, seen.f_frsize, seen.f_namemax]
}
