//! Resolution of inodes by number alone: from a file handle, or from a node id of an earlier daemon.
//!
//! A number can be forged. So an inode is resolved only if its path below the source can be proved:
//!
//! - a directory, by a lookup of `..`: through a private mount it fails with ENOENT for a directory outside the mount's
//!   root, because the kernel checks the whole path upwards;
//! - any other inode on a file system that is shown completely, because it has no other directory;
//! - any other inode by a name: the lower kernel reports a path if it has one, and the path is walked down from the
//!   source to check that it leads to the same inode. Otherwise the inode may be in the directory where it was last
//!   seen, which a [search](Lower::search) of the source finds if nothing else does.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Statx};
use rustix::io::Errno;
use shunt_fuse::{NodeId, TableNode};

use super::super::identity::Identity;
use super::super::listing::{DirEntry, Listing};
use super::super::node::Node;
use super::super::sys::ProcPath;
use super::super::{Component, Lower, credentials};
use super::Found;

const LIST: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn same(one: &Node, other: &Node) -> bool {
    one.key() == other.key() && one.is_same(other)
}

impl Lower {
    /// Resolves an inode by its id, even one that is not in the node table: the lookup of `.` by which the client
    /// resolves a file handle.
    ///
    /// # Errors
    /// ESTALE if the inode was deleted, or cannot be proved to lie below the source.
    pub(crate) fn reconnect(&self, id: NodeId) -> Result<Found, Errno> {
        credentials::enter_thread()?;
        if id == NodeId::ROOT {
            return self.found_root();
        }
        let (fd, known) = match self.nodes.get(id) {
            Ok(_) => (self.open_path(id)?.into_shared(), true),
            Err(_) => (Arc::new(self.find(id)?.1), false),
        };
        let (identity, stat) = self.identify(fd.as_fd())?;
        match identity {
            Identity::Handle(node) => {
                // A known inode was found by name earlier, even if its FORGET is in flight.
                self.proved(&node, fd.as_fd(), &stat, known)?;
                let found = self.nodes.acquire(node)?;
                if found != id {
                    self.forget(found, 1);
                    return Err(Errno::STALE);
                }
                Ok(Found { id, stat: self.shown(stat) })
            }
            Identity::Descriptor(_) => Err(Errno::STALE),
        }
    }

    /// Returns the parent of a directory: the lookup of `..`.
    ///
    /// # Errors
    /// ENOTDIR; ESTALE if the parent is not below the source.
    pub(crate) fn parent(&self, id: NodeId) -> Result<Found, Errno> {
        credentials::enter_thread()?;
        if id == NodeId::ROOT {
            return self.found_root();
        }
        let node = self.node(id)?;
        if node.kind != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        let above = self.above(self.dir(id)?.as_fd())?;
        if self.is_root(&self.identify(above.as_fd())?.1) {
            return self.found_root();
        }
        self.adopt(above.as_fd())
    }

    fn found_root(&self) -> Result<Found, Errno> {
        Ok(Found { id: NodeId::ROOT, stat: self.stat(NodeId::ROOT, None)? })
    }

    fn is_root(&self, stat: &Statx) -> bool {
        self.root_ino == stat.stx_ino && self.mounts.is_first(stat)
    }

    /// Opens `..`, which must stay below the source.
    fn above(&self, dir: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        if self.attached.is_some() {
            // Through a shared mount, `..` may lead out of the source.
            return Err(Errno::STALE);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(dir, c"..", flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT => Errno::STALE,
            errno => errno,
        })
    }

    /// Proves that an inode lies below the source, as the module documentation describes.
    pub(in super::super) fn proved(
        &self,
        node: &Node,
        fd: BorrowedFd<'_>,
        stat: &Statx,
        known: bool,
    ) -> Result<(), Errno> {
        let lost = stat.stx_nlink == 0 || self.attached.is_some() || self.is_root(stat);
        if lost {
            return Err(Errno::STALE);
        }
        if node.kind == FileType::Directory {
            return self.above(fd).map(drop);
        }
        let is_fs_root = if node.mount == 0 { self.is_fs_root } else { self.mounts.is_fs_root(node.mount) };
        if known || is_fs_root || self.is_at_its_name(node, fd) || self.is_where_seen(node) {
            return Ok(());
        }
        Err(Errno::STALE)
    }

    /// Reports whether the path that the lower kernel returns leads from the source to this inode.
    fn is_at_its_name(&self, node: &Node, fd: BorrowedFd<'_>) -> bool {
        let lookup = || {
            let path =
                rustix::fs::readlinkat(CWD, ProcPath::new(fd).as_cstr(), Vec::with_capacity(256)).ok()?;
            let path = CString::new(path.into_bytes().strip_prefix(b"/")?).ok()?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            let found = rustix::fs::openat2(&*self.root, path, flags, Mode::empty(), resolve).ok()?;
            match self.identify(found.as_fd()).ok()?.0 {
                Identity::Handle(found) => Some(same(&found, node)),
                Identity::Descriptor(_) => None,
            }
        };
        lookup() == Some(true)
    }

    /// Reports whether the directory in which an inode was last seen still contains it, and is itself below the source.
    pub(super) fn is_where_seen(&self, node: &Node) -> bool {
        let lookup = || {
            let parent = self.hints.parent(node.id()?)?;
            let dir = if parent == NodeId::ROOT {
                self.root.clone()
            } else {
                let (_, dir) = self.find(parent).ok()?;
                self.above(dir.as_fd()).ok()?;
                Arc::new(dir)
            };
            let mut listing = Listing::new(rustix::fs::openat(&*dir, c".", LIST, Mode::empty()).ok()?);
            let mut there = false;
            let look = |dir: BorrowedFd<'_>, entry: DirEntry<'_>| {
                if entry.ino == node.ino && !entry.is_dots() {
                    // The name may have been removed meanwhile; the inode may have another one.
                    let fd = Component::new(entry.name).and_then(|name| self.open_child(dir, name));
                    let found = fd.and_then(|fd| self.identify(fd.as_fd()));
                    there |= matches!(found, Ok((Identity::Handle(found), _)) if same(&found, node));
                }
                Ok(!there)
            };
            listing.walk(0, look).ok()?;
            Some(there)
        };
        lookup() == Some(true)
    }
}
