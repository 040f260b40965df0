//! From a node id to an open descriptor.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::node::Location;
use super::open_files::OpenFile;
use super::sys::ProcPath;
use super::{Component, Lower, credentials};

/// A descriptor of an inode, good for `stat` and the like.
pub(super) enum Reached {
    /// O_PATH, shared with others.
    Shared(Arc<OwnedFd>),
    /// O_PATH, opened for this.
    Own(OwnedFd),
    /// Open for data: calls that refuse O_PATH work.
    File(Arc<OpenFile>),
}

impl Reached {
    /// Open for data, not O_PATH.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::File(_))
    }
}

impl AsFd for Reached {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Shared(fd) => fd.as_fd(),
            Self::Own(fd) => fd.as_fd(),
            Self::File(file) => file.as_fd(),
        }
    }
}

impl Lower {
    /// Opens an inode O_PATH, or finds it open.
    pub(super) fn reach(&self, id: NodeId) -> Result<Reached, Errno> {
        credentials::enter_thread()?;
        if id == NodeId::ROOT {
            return Ok(Reached::Shared(self.root.clone()));
        }
        let node = self.nodes.get(id)?;
        if node.kind == FileType::Directory
            && let Some(fd) = self.dirs.get(id)
        {
            return Ok(Reached::Shared(fd));
        }
        if let Some(file) = self.files.any(id) {
            return Ok(Reached::File(file));
        }
        if let Some(fd) = self.nameless.get(id) {
            return Ok(Reached::Shared(fd));
        }
        match node.location {
            Location::Fd(fd) => Ok(Reached::Shared(fd)),
            Location::Handle(handle) => {
                let mount = self.mounts.fd(node.mount).ok_or(Errno::STALE)?;
                Ok(Reached::Own(handle.open(mount.as_fd(), OFlags::PATH | OFlags::NOFOLLOW)?))
            }
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
        let node = self.nodes.get(id)?;
        if node.kind != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        let fd = match node.location {
            Location::Fd(fd) => return Ok(fd),
            Location::Handle(handle) => {
                if let Some(fd) = self.nameless.get(id) {
                    return Ok(fd);
                }
                let mount = self.mounts.fd(node.mount).ok_or(Errno::STALE)?;
                Arc::new(handle.open(mount.as_fd(), OFlags::PATH | OFlags::DIRECTORY)?)
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
        credentials::enter_thread()?;
        let node = self.nodes.get(id)?;
        let held = match node.location {
            Location::Fd(fd) => Reached::Shared(fd),
            Location::Handle(handle) => {
                let mount = self.mounts.fd(node.mount).ok_or(Errno::STALE)?;
                match handle.open(mount.as_fd(), flags) {
                    // Without a name, but perhaps still open.
                    Err(Errno::STALE) => self.reach(id)?,
                    result => return result,
                }
            }
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
