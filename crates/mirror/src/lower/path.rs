//! What rules about paths ask of the engine.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, OFlags, StatxFlags};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::sys::ProcPath;
use super::{Component, Lower};

impl Lower {
    /// The path of a directory below the root, as it is now: `/` and names.
    ///
    /// # Errors
    /// ENOTDIR, ESTALE, and those of `readlink(2)`.
    pub fn path(&self, dir: NodeId) -> Result<Vec<u8>, Errno> {
        if dir == NodeId::ROOT {
            return Ok(b"/".to_vec());
        }
        let read = |fd: &OwnedFd| {
            rustix::fs::readlinkat(CWD, ProcPath::new(fd).as_cstr(), Vec::new()).map(|path| path.into_bytes())
        };
        // Of a private copy of the tree the root is `/`; else it is where the source is.
        let (root, path) = (read(&self.root)?, read(&*self.dir(dir)?)?);
        if root == b"/" {
            return Ok(path);
        }
        path.strip_prefix(&root[..])
            .filter(|rest| rest.starts_with(b"/"))
            .map(<[u8]>::to_vec)
            .ok_or(Errno::STALE)
    }

    /// The kind of an inode.
    ///
    /// # Errors
    /// ESTALE.
    pub fn kind(&self, id: NodeId) -> Result<FileType, Errno> {
        Ok(self.node(id)?.kind)
    }

    /// The kind of the inode behind a name.
    ///
    /// # Errors
    /// ENOENT, and others of `statx(2)`.
    pub fn kind_at(&self, parent: NodeId, name: Component<'_>) -> Result<FileType, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = rustix::fs::statx(&*self.dir(parent)?, name.as_cstr(), flags, StatxFlags::TYPE)?;
        Ok(FileType::from_raw_mode(stat.stx_mode.into()))
    }

    /// Opens a regular file to look into it, in nobody's name, without a trace in its access time where that may be.
    ///
    /// # Errors
    /// Those of `open(2)`; EWOULDBLOCK where somebody holds a lease on it.
    pub fn peek(&self, id: NodeId) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        match self.reopen(id, flags | OFlags::NOATIME) {
            Err(Errno::PERM) => self.reopen(id, flags),
            opened => opened,
        }
    }

    /// Names that an inode has.
    ///
    /// # Errors
    /// ESTALE, and those of `statx(2)`.
    pub fn links(&self, id: NodeId) -> Result<u32, Errno> {
        let reached = self.open_path(id)?;
        Ok(rustix::fs::statx(reached.as_fd(), c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK)?.stx_nlink)
    }
}
