//! Finding names.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use shunt_fuse::{NodeId, TableNode};

use super::super::handle::FileHandle;
use super::super::mounts::MountKey;
use super::super::node::{Location, Node};
use super::super::sys::ProcPath;
use super::super::{Component, Lower, STAT};

/// An inode found. It counts as one lookup, which [`Lower::forget`] takes back.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Its id.
    pub id: NodeId,
    /// Its attributes as shown.
    pub stat: Statx,
}

impl Lower {
    /// Finds a name in a directory.
    ///
    /// # Errors
    /// ENOENT, and others of `open(2)`; EXDEV at a mount point where the source is not a private copy.
    pub fn lookup(&self, parent: NodeId, name: Component<'_>) -> Result<Found, Errno> {
        let dir = self.dir(parent)?;
        self.lookup_at(parent, dir.as_fd(), name)
    }

    /// Finds a node that is known, as a lookup that leads to it would.
    ///
    /// # Errors
    /// ESTALE where its inode is gone.
    pub(crate) fn again(&self, id: NodeId) -> Result<Found, Errno> {
        let reached = self.open_path(id)?;
        let stat = rustix::fs::statx(&reached, c"", AtFlags::EMPTY_PATH, STAT)?;
        Ok(Found { id: self.nodes.acquire(self.node(id)?)?, stat: self.shown(stat) })
    }

    /// Finds a name in the open directory `dir`, which is `parent`.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup).
    pub fn lookup_at(
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

    /// Remembers where an inode is, which may have to be proved long after it is forgotten. Directories know.
    pub(super) fn seen(&self, node: &Node, parent: NodeId) {
        if node.kind != FileType::Directory
            && let Some(id) = node.id()
        {
            self.hints.note(id, parent);
        }
    }

    /// What tells the inode behind a name from all others that there are: its number and its device.
    ///
    /// # Errors
    /// Those of `statx(2)`.
    pub fn identity(&self, parent: NodeId, name: Component<'_>) -> Result<[u64; 2], Errno> {
        let dir = self.dir(parent)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = rustix::fs::statx(&dir, name.as_cstr(), flags, StatxFlags::INO)?;
        Ok([stat.stx_ino, u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor)])
    }

    /// The node of a file that is open for data.
    pub(super) fn adopt(&self, file: BorrowedFd<'_>) -> Result<Found, Errno> {
        let (node, stat) = self.identify(file)?;
        let node = match node {
            Identity::Handle(node) => node,
            Identity::Descriptor(make) => make(Arc::new(reopen_path(file)?)),
        };
        Ok(Found { id: self.nodes.acquire(node)?, stat: self.shown(stat) })
    }

    /// The id under which an open file is known, if it is.
    pub(in super::super) fn known(&self, file: BorrowedFd<'_>) -> Option<NodeId> {
        match self.identify(file).ok()?.0 {
            Identity::Handle(node) => self.nodes.find(&node),
            // Held open by its node.
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
                // Some inodes of a file system may have none.
                Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok((Identity::Descriptor(Box::new(move |fd| node(Location::Fd(fd)))), stat))
    }
}

pub(in super::super) enum Identity {
    /// Complete.
    Handle(Node),
    /// Complete with an O_PATH descriptor.
    Descriptor(Box<dyn FnOnce(Arc<OwnedFd>) -> Node>),
}

fn reopen_path(file: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, ProcPath::new(file).as_cstr(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}
