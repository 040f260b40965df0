//! Name lookup and inode identification.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use shunt_fuse::{NodeId, TableNode};

use super::super::handle::FileHandle;
use super::super::identity::Identity;
use super::super::mounts::MountKey;
use super::super::node::{Location, Node};
use super::super::sys::ProcPath;
use super::super::{Component, Lower, STAT};

/// The result of a lookup. It counts as one lookup reference, which [`Lower::forget`] drops.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Its node id.
    pub id: NodeId,
    /// Its attributes, as shown in the mount.
    pub stat: Statx,
}

impl Lower {
    /// Looks up a name in a directory.
    ///
    /// # Errors
    /// ENOENT, or another error of `open(2)`; EXDEV at a mount point if the source is not a private copy.
    pub fn lookup(&self, parent: NodeId, name: Component<'_>) -> Result<Found, Errno> {
        let dir = self.dir(parent)?;
        self.lookup_at(parent, dir.as_fd(), name)
    }

    /// Takes another lookup reference to a known node.
    ///
    /// # Errors
    /// ESTALE if its inode was deleted.
    pub fn again(&self, id: NodeId) -> Result<Found, Errno> {
        let reached = self.open_path(id)?;
        let stat = rustix::fs::statx(&reached, c"", AtFlags::EMPTY_PATH, STAT)?;
        Ok(Found { id: self.nodes.acquire(self.node(id)?)?, stat: self.shown(stat) })
    }

    /// Looks up a name in the open directory `dir`, which is the node `parent`.
    ///
    /// # Errors
    /// The errors of [`lookup`](Self::lookup).
    pub(crate) fn lookup_at(
        &self,
        parent: NodeId,
        dir: BorrowedFd<'_>,
        name: Component<'_>,
    ) -> Result<Found, Errno> {
        let fd = self.open_child(dir, name)?;
        let (node, stat) = self.identify(fd.as_fd())?;
        let node = match node {
            Identity::Handle(node) => node,
            Identity::Descriptor(make) => make(Arc::new(fd)),
        };
        self.seen(&node, parent);
        Ok(Found { id: self.nodes.acquire(node)?, stat: self.shown(stat) })
    }

    /// Records the parent directory of an inode, which may be needed for a proof long after the inode is forgotten.
    /// Directories need no record: they have `..`.
    pub(super) fn seen(&self, node: &Node, parent: NodeId) {
        if node.kind != FileType::Directory
            && let Some(id) = node.id()
        {
            self.hints.note(id, parent);
        }
    }

    /// Returns inode number and device of the inode behind a name, which identify it uniquely.
    ///
    /// # Errors
    /// The error of `statx(2)`.
    pub(crate) fn identity(&self, parent: NodeId, name: Component<'_>) -> Result<[u64; 2], Errno> {
        let dir = self.dir(parent)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = rustix::fs::statx(&dir, name.as_cstr(), flags, StatxFlags::INO)?;
        Ok([stat.stx_ino, u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor)])
    }

    /// Returns the node of a file that is open for data, with a lookup reference.
    pub(super) fn adopt(&self, file: BorrowedFd<'_>) -> Result<Found, Errno> {
        let (node, stat) = self.identify(file)?;
        let node = match node {
            Identity::Handle(node) => node,
            Identity::Descriptor(make) => make(Arc::new(reopen_path(file)?)),
        };
        Ok(Found { id: self.nodes.acquire(node)?, stat: self.shown(stat) })
    }

    /// Returns the id of an open file's inode, if it is known.
    pub(in super::super) fn known(&self, file: BorrowedFd<'_>) -> Option<NodeId> {
        match self.identify(file).ok()?.0 {
            Identity::Handle(node) => self.nodes.find(&node),
            // Its node holds it open anyway.
            Identity::Descriptor(_) => None,
        }
    }

    pub(in super::super) fn identify(&self, fd: BorrowedFd<'_>) -> Result<(Identity, Statx), Errno> {
        let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, STAT)?;
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        let mount = self.mounts.index(MountKey::of(&stat), fd, kind, stat.stx_ino)?;
        let device = self.devices.index((stat.stx_dev_major, stat.stx_dev_minor));
        let ino = stat.stx_ino;
        let node = move |location| Node { ino, mount, device, kind, location };
        if let Some(opener) = self.mounts.opener(mount) {
            match FileHandle::of(fd) {
                Ok(handle) => {
                    let generation = opener.codec.and_then(|codec| codec.generation(&handle, ino));
                    let location = generation.map_or(Location::Handle(handle), Location::Generation);
                    return Ok((Identity::Handle(node(location)), stat));
                }
                // Some inodes of a file system may not support handles.
                Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok((Identity::Descriptor(Box::new(move |fd| node(Location::Fd(fd)))), stat))
    }
}

fn reopen_path(file: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, ProcPath::new(file).as_cstr(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}
