//! From a node id to an open descriptor.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use shunt_fuse::{NodeId, TableNode};

use super::node::{Location, Node};
use super::node_id::Ident;
use super::open_files::OpenFile;
use super::ops::Identity;
use super::sys::ProcPath;
use super::{Component, Lower, STAT, credentials};

/// A descriptor of an inode, good for `stat` and the like.
pub(super) enum InodeFd {
    /// O_PATH, shared with others.
    Shared(Arc<OwnedFd>),
    /// O_PATH, opened for this.
    Own(OwnedFd),
    /// Open for data: calls that refuse O_PATH work.
    File(Arc<OpenFile>),
}

impl InodeFd {
    /// A descriptor of its own, or a share of one.
    pub(super) fn into_shared(self) -> Arc<OwnedFd> {
        match self {
            Self::Shared(fd) => fd,
            Self::Own(fd) => Arc::new(fd),
            Self::File(file) => file.file.clone(),
        }
    }

    /// Open for data, not O_PATH.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::File(_))
    }
}

impl AsFd for InodeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Shared(fd) => fd.as_fd(),
            Self::Own(fd) => fd.as_fd(),
            Self::File(file) => file.as_fd(),
        }
    }
}

impl Lower {
    /// What is kept of an inode. One that the other side knows from an earlier daemon is found again by its id, as far
    /// as the id says enough; its lookups were counted there.
    pub(super) fn node(&self, id: NodeId) -> Result<Node, Errno> {
        match self.nodes.get(id) {
            Ok(node) => Ok(node),
            Err(_) => self.revive(id),
        }
    }

    fn revive(&self, id: NodeId) -> Result<Node, Errno> {
        let (node, fd) = self.find(id)?;
        if !self.resumes {
            let stat = rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, STAT)?;
            self.proved(&node, fd.as_fd(), &stat, false)?;
        }
        // A FORGET meanwhile is no harm: it takes out again what is put in here, or came too early for it.
        self.nodes.revive(node.clone())?;
        Ok(node)
    }

    /// The inode that an id speaks of, be it known or not, and the same inode open O_PATH.
    ///
    /// # Errors
    /// ESTALE where the inode is gone, or the id is no such.
    pub(super) fn find(&self, id: NodeId) -> Result<(Node, OwnedFd), Errno> {
        credentials::enter_thread()?;
        let Ident { mount, ino, generation } = Ident::of(id).ok_or(Errno::STALE)?;
        let opener = self.mounts.opener(mount).ok_or(Errno::STALE)?;
        let handle = opener.codec.and_then(|codec| codec.handle(ino, generation)).ok_or(Errno::STALE)?;
        let fd = handle.open(opener.fd.as_fd(), OFlags::PATH | OFlags::NOFOLLOW)?;
        match self.identify(fd.as_fd())?.0 {
            Identity::Handle(node) if node.id() == Some(id) => Ok((node, fd)),
            // Not every file system looks at the whole handle.
            _ => Err(Errno::STALE),
        }
    }

    /// Opens a node by its handle.
    fn open_node(&self, node: &Node, flags: OFlags) -> Result<OwnedFd, Errno> {
        let opener = self.mounts.opener(node.mount).ok_or(Errno::STALE)?;
        let mount = opener.fd.as_fd();
        match &node.location {
            Location::Handle(handle) => handle.open(mount, flags),
            Location::Generation(generation) => opener
                .codec
                .and_then(|codec| codec.handle(node.ino, *generation))
                .ok_or(Errno::STALE)?
                .open(mount, flags),
            Location::Fd(_) => Err(Errno::STALE),
        }
    }

    /// Opens an inode O_PATH, or finds it open.
    pub(super) fn open_path(&self, id: NodeId) -> Result<InodeFd, Errno> {
        credentials::enter_thread()?;
        if id == NodeId::ROOT {
            return Ok(InodeFd::Shared(self.root.clone()));
        }
        let node = self.node(id)?;
        if node.kind == FileType::Directory
            && let Some(fd) = self.dirs.get(id)
        {
            return Ok(InodeFd::Shared(fd));
        }
        if let Some(file) = self.files.any(id) {
            return Ok(InodeFd::File(file));
        }
        if let Some(fd) = self.nameless.get(id) {
            return Ok(InodeFd::Shared(fd));
        }
        match node.location {
            Location::Fd(fd) => Ok(InodeFd::Shared(fd)),
            _ => Ok(InodeFd::Own(self.open_node(&node, OFlags::PATH | OFlags::NOFOLLOW)?)),
        }
    }

    /// A directory to look into. It is kept open for a while.
    pub(super) fn dir(&self, id: NodeId) -> Result<Arc<OwnedFd>, Errno> {
        credentials::enter_thread()?;
        if id == NodeId::ROOT {
            return Ok(self.root.clone());
        }
        if let Some(fd) = self.dirs.get(id) {
            return Ok(fd);
        }
        let node = self.node(id)?;
        if node.kind != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        let fd = match node.location {
            Location::Fd(fd) => return Ok(fd),
            _ => {
                if let Some(fd) = self.nameless.get(id) {
                    return Ok(fd);
                }
                Arc::new(self.open_node(&node, OFlags::PATH | OFlags::DIRECTORY)?)
            }
        };
        self.dirs.put(id, fd.clone());
        // A FORGET in between would leave the directory open with nobody to let go of it.
        if self.nodes.get(id).is_err() {
            self.dirs.remove(id);
        }
        Ok(fd)
    }

    /// Opens an inode for data, with the flags given.
    pub(super) fn reopen(&self, id: NodeId, flags: OFlags) -> Result<OwnedFd, Errno> {
        if self.unnoted {
            // Only the owner may read unnoted.
            match self.reopen_as_told(id, flags | OFlags::NOATIME) {
                Err(Errno::PERM) => {}
                opened => return opened,
            }
        }
        self.reopen_as_told(id, flags)
    }

    fn reopen_as_told(&self, id: NodeId, flags: OFlags) -> Result<OwnedFd, Errno> {
        credentials::enter_thread()?;
        let node = self.node(id)?;
        let held = match node.location {
            Location::Fd(fd) => InodeFd::Shared(fd),
            _ => match self.open_node(&node, flags) {
                // Without a name, but perhaps still open.
                Err(Errno::STALE) => self.open_path(id)?,
                result => return result,
            },
        };
        let flags = flags | OFlags::CLOEXEC;
        if node.kind == FileType::Directory {
            rustix::fs::openat(held, c".", flags, Mode::empty())
        } else {
            rustix::fs::openat(CWD, ProcPath::new(held).as_cstr(), flags, Mode::empty())
        }
    }

    /// Opens a name in a directory, O_PATH, without following it.
    pub(super) fn open_child(&self, dir: BorrowedFd<'_>, name: Component<'_>) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name: &CStr = name.as_cstr();
        if self.attached.is_none() {
            // One checked component that is not followed stays below the directory: nothing to resolve.
            rustix::fs::openat(dir, name, flags, Mode::empty())
        } else {
            // The tree is the one that everybody sees: our own mount may lie in it, and must not be entered.
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
            rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve)
        }
    }
}
