//! The mounts below the source: through which files are opened again by handle.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::RwLock;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::handle::FileHandle;
use super::sys::ProcPath;

/// File systems whose handles go stale while the file lives: FUSE (what its server forgot) and FAT (inodes that left
/// the cache).
const STALE_HANDLES: [i64; 2] = [0x6573_5546, 0x4d44];

#[derive(Debug, Clone)]
struct Mount {
    id: u64,
    /// Open file of the mount; `None` where handles do not work.
    fd: Option<Arc<OwnedFd>>,
}

/// Mounts seen so far, each with an index that nodes keep.
#[derive(Debug, Default)]
pub struct Mounts {
    seen: RwLock<Vec<Mount>>,
}

impl Mounts {
    /// The index of the mount `id`, of which `fd` is a file. A mount not seen before is tried for handles.
    ///
    /// # Errors
    /// ENFILE with more than 65,535 mounts.
    pub fn index(&self, id: u64, fd: BorrowedFd<'_>, kind: FileType) -> Result<u16, Errno> {
        let position = |seen: &[Mount]| seen.iter().position(|mount| mount.id == id);
        if let Some(index) = position(&self.seen.read()) {
            return Ok(index as u16);
        }
        let fd = probe(fd, kind).map(Arc::new);
        let mut seen = self.seen.write();
        if let Some(index) = position(&seen) {
            return Ok(index as u16);
        }
        let index = u16::try_from(seen.len()).map_err(|_| Errno::NFILE)?;
        match &fd {
            Ok(_) => tracing::debug!(mount = id, "files are reopened by handle"),
            Err(errno) => {
                tracing::info!(mount = id, %errno, "no file handles here: a descriptor is held per inode")
            }
        }
        seen.push(Mount { id, fd: fd.ok() });
        Ok(index)
    }

    /// The file through which handles of a mount are opened.
    pub fn fd(&self, index: u16) -> Option<Arc<OwnedFd>> {
        self.seen.read().get(usize::from(index))?.fd.clone()
    }

    /// An open file of each mount that has one.
    pub fn fds(&self) -> Vec<Arc<OwnedFd>> {
        self.seen.read().iter().filter_map(|mount| mount.fd.clone()).collect()
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

/// Opens a file of the mount, and opens it once more by its handle, to see that both work.
fn probe(fd: BorrowedFd<'_>, kind: FileType) -> Result<OwnedFd, Errno> {
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
    Ok(mount)
}
