//! Opening inodes by node id.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use shunt_fuse::{NodeId, TableNode};

use super::identity::Identity;
use super::node::{Location, Node};
use super::node_id::Ident;
use super::open_files::OpenFile;
use super::sys::ProcPath;
use super::{Component, Lower, STAT, credentials};

/// A descriptor of an inode, suitable for `stat` and similar calls.
pub(super) enum InodeFd {
    /// A shared O_PATH descriptor.
    Shared(Arc<OwnedFd>),
    /// An O_PATH descriptor opened for this use.
    Own(OwnedFd),
    /// A file open for data, which also supports calls that reject O_PATH.
    File(Arc<OpenFile>),
}

impl InodeFd {
    /// Converts into a shared descriptor.
    pub(super) fn into_shared(self) -> Arc<OwnedFd> {
        match self {
            Self::Shared(fd) => fd,
            Self::Own(fd) => Arc::new(fd),
            Self::File(file) => file.file.clone(),
        }
    }

    /// Reports whether the descriptor is open for data, not O_PATH.
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
    /// Returns the record of an inode. An inode that the client knows from an earlier daemon is found by its id, if the
    /// id encodes a file handle; its lookup count is kept there.
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
        // A concurrent FORGET is harmless: it either removes the entry inserted here or arrives before it.
        self.nodes.revive(node.clone())?;
        Ok(node)
    }

    /// Resolves an id to its inode, known or not, and opens the inode with O_PATH.
    ///
    /// # Errors
    /// ESTALE if the inode was deleted or the id encodes none.
    pub(super) fn find(&self, id: NodeId) -> Result<(Node, OwnedFd), Errno> {
        credentials::enter_thread()?;
        let Ident { mount, ino, generation } = Ident::of(id).ok_or(Errno::STALE)?;
        let opener = self.mounts.opener(mount).ok_or(Errno::STALE)?;
        let handle = opener.codec.and_then(|codec| codec.handle(ino, generation)).ok_or(Errno::STALE)?;
        let fd = handle.open(opener.fd.as_fd(), OFlags::PATH | OFlags::NOFOLLOW)?;
        match self.identify(fd.as_fd())?.0 {
            Identity::Handle(node) if node.id() == Some(id) => Ok((node, fd)),
            // Some file systems do not check the whole handle.
            _ => Err(Errno::STALE),
        }
    }

    /// Opens a node by its file handle.
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

    /// Returns an O_PATH descriptor of an inode, opened or shared.
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
        if let Some(fd) = self.unlinked.get(id) {
            return Ok(InodeFd::Shared(fd));
        }
        match node.location {
            Location::Fd(fd) => Ok(InodeFd::Shared(fd)),
            _ => Ok(InodeFd::Own(self.open_node(&node, OFlags::PATH | OFlags::NOFOLLOW)?)),
        }
    }

    /// Returns a directory for lookups, from the descriptor cache or opened.
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
                if let Some(fd) = self.unlinked.get(id) {
                    return Ok(fd);
                }
                Arc::new(self.open_node(&node, OFlags::PATH | OFlags::DIRECTORY)?)
            }
        };
        self.dirs.put(id, fd.clone());
        // A concurrent FORGET would leave a cached descriptor that nothing removes.
        if self.nodes.get(id).is_err() {
            self.dirs.remove(id);
        }
        Ok(fd)
    }

    /// Opens an inode for data with the given flags.
    pub(super) fn reopen(&self, id: NodeId, flags: OFlags) -> Result<OwnedFd, Errno> {
        if self.opens_noatime {
            // Only the owner may use O_NOATIME.
            match self.reopen_with_flags(id, flags | OFlags::NOATIME) {
                Err(Errno::PERM) => {}
                opened => return opened,
            }
        }
        self.reopen_with_flags(id, flags)
    }

    fn reopen_with_flags(&self, id: NodeId, flags: OFlags) -> Result<OwnedFd, Errno> {
        credentials::enter_thread()?;
        let node = self.node(id)?;
        let held = match node.location {
            Location::Fd(fd) => InodeFd::Shared(fd),
            _ => match self.open_node(&node, flags) {
                // The inode has no name left, but may still be open.
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

    /// Opens a name in a directory with O_PATH, without following symbolic links.
    pub(super) fn open_child(&self, dir: BorrowedFd<'_>, name: Component<'_>) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name: &CStr = name.as_cstr();
        if self.attached.is_none() {
            // A single checked component that is not followed stays below the directory, so no resolve flags are
            // needed.
            rustix::fs::openat(dir, name, flags, Mode::empty())
        } else {
            // The source is part of the public mount tree: our own mount may lie in it and must not be entered.
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
            rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve)
        }
    }
}
