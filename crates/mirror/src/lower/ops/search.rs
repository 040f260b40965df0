//! The last resort for an inode of which only a handle is known: a walk of the source for the directory that contains
//! it.
//!
//! A handle used after a remount of the mirror, or after more inodes were seen than can be remembered, names an inode
//! that may lie anywhere on the file system. The walk reads each directory of the source once, compares inode numbers,
//! and records the directory of each inode, so that the next such handle costs one directory read.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use shunt_fuse::{NodeId, TableNode as _};

use super::super::handle::FileHandle;
use super::super::identity::Identity;
use super::super::listing::Listing;
use super::super::node::Location;
use super::super::node_id::Ident;
use super::super::{Component, Lower, STAT, credentials};

const LIST: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// A directory to read: its mount, its handle, and its id if it has one.
struct Ahead {
    mount: u16,
    handle: FileHandle,
    id: Option<NodeId>,
}

/// Encodes an inode by number alone, as listings report it.
fn numbered(mount: u16, ino: u64) -> Option<NodeId> {
    Ident { mount, ino, generation: 0 }.id()
}

impl Lower {
    /// Reports whether a walk of the source can locate an inode: it exists, has a name and is not a directory, and
    /// hints are stored.
    pub(crate) fn is_worth_a_search(&self, id: NodeId) -> bool {
        if !self.hints.are_kept() {
            return false;
        }
        let Ok((node, fd)) = self.find(id) else { return false };
        let named = || {
            let stat = rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, STAT);
            stat.is_ok_and(|stat| stat.stx_nlink > 0)
        };
        node.kind != FileType::Directory && named()
    }

    /// Walks the source and records the directory of each inode. `goes_on` is called before each directory with the
    /// number of inodes not found yet; `false` ends the walk.
    pub(crate) fn search(&self, ids: &[NodeId], goes_on: impl Fn(usize) -> bool) {
        if credentials::enter_thread().is_err() {
            return;
        }
        let number = |id: &NodeId| Ident::of(*id).and_then(|ident| numbered(ident.mount, ident.ino));
        let mut missing: HashSet<NodeId> = ids.iter().filter_map(number).collect();
        let mut ahead = Vec::new();
        if let Ok(root) = rustix::fs::openat(&*self.root, c".", LIST | OFlags::CLOEXEC, Mode::empty()) {
            self.read_ahead(root, 0, Some(NodeId::ROOT), &mut missing, &mut ahead);
        }
        while goes_on(missing.len())
            && let Some(Ahead { mount, handle, id }) = ahead.pop()
        {
            // A directory that cannot be opened, or was removed, is skipped.
            if let Some(opener) = self.mounts.opener(mount)
                && let Ok(dir) = handle.open(opener.fd.as_fd(), LIST)
            {
                self.read_ahead(dir, mount, id, &mut missing, &mut ahead);
            }
        }
    }

    /// Reports whether an inode is in the directory where it was last seen.
    pub(crate) fn is_where_noted(&self, id: NodeId) -> bool {
        self.find(id).is_ok_and(|(node, _)| self.is_where_seen(&node))
    }

    /// Reads one directory: records its entries and queues its subdirectories.
    fn read_ahead(
        &self,
        dir: OwnedFd,
        mount: u16,
        id: Option<NodeId>,
        missing: &mut HashSet<NodeId>,
        ahead: &mut Vec<Ahead>,
    ) {
        let mut met = |mount, ino| {
            if let (Some(node), Some(id)) = (numbered(mount, ino), id) {
                self.hints.note(node, id);
                missing.remove(&node);
            }
        };
        let walked = Listing::new(dir).walk(0, |dir, entry| {
            if entry.is_dots() {
                return Ok(true);
            }
            if !matches!(entry.kind, FileType::Directory | FileType::Unknown) {
                met(mount, entry.ino);
                return Ok(true);
            }
            let child = Component::new(entry.name).and_then(|name| self.open_child(dir, name));
            let Ok((Identity::Handle(node), _)) = child.and_then(|child| self.identify(child.as_fd())) else {
                return Ok(true);
            };
            if node.kind != FileType::Directory {
                met(node.mount, node.ino);
                return Ok(true);
            }
            let handle = match &node.location {
                Location::Handle(handle) => Some(handle.clone()),
                Location::Generation(generation) => self
                    .mounts
                    .opener(node.mount)
                    .and_then(|opener| opener.codec?.handle(node.ino, *generation)),
                Location::Fd(_) => None,
            };
            if let Some(handle) = handle {
                ahead.push(Ahead { mount: node.mount, handle, id: node.id() });
            }
            Ok(true)
        });
        if let Err(errno) = walked {
            tracing::debug!(%errno, "cannot search a directory");
        }
    }
}
