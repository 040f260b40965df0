//! Opening files of a mount by file handle, for file systems whose handles stay valid as long as the file exists.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::codec::Codec;
use super::handle::FileHandle;
use super::sys::ProcPath;

/// The means of opening files of a mount by handle.
#[derive(Debug, Clone)]
pub(super) struct Opener {
    /// An open file of the mount.
    pub fd: Arc<OwnedFd>,
    /// The layout of its file handles, if known.
    pub codec: Option<Codec>,
}

/// File systems whose handles go stale while the file exists: FUSE (inodes that its server forgot) and FAT (inodes
/// evicted from the cache).
const STALE_HANDLES: [i64; 2] = [0x6573_5546, 0x4d44];

impl Opener {
    /// Opens a file of the mount, and opens it again by its handle, to verify that both work.
    ///
    /// # Errors
    /// EOPNOTSUPP if handles of the file system go stale, or if the file is neither a directory nor a regular file; the
    /// error of opening the file, or its handle.
    pub(super) fn probe(fd: BorrowedFd<'_>, kind: FileType, ino: u64) -> Result<Self, Errno> {
        let magic = rustix::fs::fstatfs(fd)?.f_type;
        if STALE_HANDLES.contains(&magic) {
            return Err(Errno::OPNOTSUPP);
        }
        let handle = FileHandle::of(fd)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        let mount = match kind {
            FileType::Directory => rustix::fs::openat(fd, c".", flags | OFlags::DIRECTORY, Mode::empty())?,
            FileType::RegularFile => {
                rustix::fs::openat(CWD, ProcPath::new(fd).as_cstr(), flags, Mode::empty())?
            }
            // Opening a device or a pipe has side effects.
            _ => return Err(Errno::OPNOTSUPP),
        };
        handle.open(mount.as_fd(), OFlags::PATH)?;
        Ok(Self { fd: Arc::new(mount), codec: Codec::of(&handle, ino).map(|(codec, _)| codec) })
    }
}
