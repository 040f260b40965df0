//! The in-memory record of an inode that the client knows, and how the inode is opened.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::FileType;
use shunt_fuse::{NodeId, NodeTable, TableNode};

use super::handle::FileHandle;
use super::node_id::Ident;

/// The means by which a node is opened.
#[derive(Debug, Clone)]
pub(super) enum Location {
    /// A file handle built from inode number and generation: see [`Codec`](super::codec::Codec).
    Generation(u32),
    /// A stored file handle.
    Handle(FileHandle),
    /// An O_PATH descriptor, for file systems without usable handles.
    Fd(Arc<OwnedFd>),
}

/// The record of an inode.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Inode number on the lower file system.
    pub ino: u64,
    /// Index of the mount, in [`Mounts`](super::mounts::Mounts).
    pub mount: u16,
    /// Index of the device, in [`Devices`](super::devices::Devices).
    pub device: u16,
    /// File type of the inode; it never changes.
    pub kind: FileType,
    /// The means of opening it.
    pub location: Location,
}

// One cache line: 64 bytes of the budget of 160 per inode.
const _: () = assert!(NodeTable::<Node>::SLOT <= 64);

impl TableNode for Node {
    type Key = (u16, u64);

    fn key(&self) -> (u16, u64) {
        (self.mount, self.ino)
    }

    /// Compares inodes. A handle distinguishes reuses of an inode number; an inode held open keeps its number.
    fn is_same(&self, other: &Self) -> bool {
        match (&self.location, &other.location) {
            (Location::Generation(a), Location::Generation(b)) => a == b,
            (Location::Handle(a), Location::Handle(b)) => a == b,
            (Location::Fd(_), Location::Fd(_)) => true,
            _ => false,
        }
    }

    fn id(&self) -> Option<NodeId> {
        match self.location {
            Location::Generation(generation) => Ident { mount: self.mount, ino: self.ino, generation }.id(),
            _ => None,
        }
    }

    fn key_of(id: NodeId) -> Option<(u16, u64)> {
        Ident::of(id).map(|Ident { mount, ino, .. }| (mount, ino))
    }

    fn heap(&self) -> usize {
        match &self.location {
            Location::Handle(handle) => handle.heap(),
            Location::Generation(_) | Location::Fd(_) => 0,
        }
    }
}
