//! Path, type and content queries that the path rules need.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, OFlags, StatxFlags};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::sys::ProcPath;
use super::{Component, Lower};

impl Lower {
    /// Returns the current path of a directory below the root: `/` and names.
    ///
    /// # Errors
    /// ENOTDIR, ESTALE, or the error of `readlink(2)`.
    pub fn path(&self, dir: NodeId) -> Result<Vec<u8>, Errno> {
        if dir == NodeId::ROOT {
            return Ok(b"/".to_vec());
        }
        let read = |fd: &OwnedFd| {
            rustix::fs::readlinkat(CWD, ProcPath::new(fd).as_cstr(), Vec::new()).map(|path| path.into_bytes())
        };
        // The root of a private copy of the tree is `/`; otherwise it is the path of the source.
        let (root, path) = (read(&self.root)?, read(&*self.dir(dir)?)?);
        if root == b"/" {
            return Ok(path);
        }
        path.strip_prefix(&root[..])
            .filter(|rest| rest.starts_with(b"/"))
            .map(<[u8]>::to_vec)
            .ok_or(Errno::STALE)
    }

    /// Returns the file type of an inode.
    ///
    /// # Errors
    /// ESTALE.
    pub fn kind(&self, id: NodeId) -> Result<FileType, Errno> {
        Ok(self.node(id)?.kind)
    }

    /// Returns the file type of the inode behind a name.
    ///
    /// # Errors
    /// ENOENT, or another error of `statx(2)`.
    pub fn kind_at(&self, parent: NodeId, name: Component<'_>) -> Result<FileType, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = rustix::fs::statx(&*self.dir(parent)?, name.as_cstr(), flags, StatxFlags::TYPE)?;
        Ok(FileType::from_raw_mode(stat.stx_mode.into()))
    }

    /// Opens a regular file to inspect it with the daemon's own rights, with O_NOATIME if permitted.
    ///
    /// # Errors
    /// The error of `open(2)`; EWOULDBLOCK if another process holds a lease on it.
    pub fn peek(&self, id: NodeId) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        match self.reopen(id, flags | OFlags::NOATIME) {
            Err(Errno::PERM) => self.reopen(id, flags),
            opened => opened,
        }
    }

    /// Returns the link count of an inode.
    ///
    /// # Errors
    /// ESTALE, or the error of `statx(2)`.
    pub fn links(&self, id: NodeId) -> Result<u32, Errno> {
        let reached = self.open_path(id)?;
        Ok(rustix::fs::statx(reached.as_fd(), c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK)?.stx_nlink)
    }
}
