//! The inodes that the other side knows: ids, lookup counts, and what is needed to open each.

mod shard;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::handle::FileHandle;
use shard::Shard;

/// Names a node. The upper 32 bits tell reuses of one slot apart, so that an id out of date is an error and never
/// another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The directory that is shown. It is never forgotten.
    pub const ROOT: NodeId = NodeId(1);

    fn new(shard: usize, local: u32, generation: u32) -> Self {
        Self((u64::from(generation) << 32 | u64::from(local) << SHARD_BITS | shard as u64) + 1)
    }

    fn parts(self) -> Option<(usize, u32, u32)> {
        let raw = self.0.checked_sub(1)?;
        Some((raw as usize % SHARDS, raw as u32 >> SHARD_BITS, (raw >> 32) as u32))
    }
}

/// How a node is reached.
#[derive(Debug, Clone)]
pub enum Location {
    /// By handle: costs no descriptor.
    Handle(FileHandle),
    /// By an O_PATH descriptor, where handles do not work.
    Fd(Arc<OwnedFd>),
}

impl Location {
    /// Whether both lead to one inode, given that mount and inode number agree. An inode held open keeps its number.
    fn same(&self, other: &Location) -> bool {
        match (self, other) {
            (Self::Handle(a), Self::Handle(b)) => a == b,
            (Self::Fd(_), Self::Fd(_)) => true,
            _ => false,
        }
    }
}

/// What is kept of an inode.
#[derive(Debug, Clone)]
pub struct Node {
    /// Inode number on the lower file system.
    pub ino: u64,
    /// Index of the mount, in [`Mounts`](super::mounts::Mounts).
    pub mount: u16,
    /// Index of the device, in [`Devices`](super::devices::Devices).
    pub device: u16,
    /// Kind of the inode; it never changes.
    pub kind: FileType,
    /// How to open it.
    pub location: Location,
}

const SHARD_BITS: u32 = 5;
const SHARDS: usize = 1 << SHARD_BITS;

/// The table inside of a shard uses the low bits and the top seven.
fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

/// All nodes. Memory grows in small chunks with the number of nodes, and is reused, not returned.
pub struct NodeTable {
    root: Node,
    shards: [Mutex<Shard>; SHARDS],
    hasher: DefaultHashBuilder,
    held: AtomicU64,
    hand: AtomicU32,
}

impl NodeTable {
    /// A table that holds `root` only.
    pub fn new(root: Node) -> Self {
        let shards: [Mutex<Shard>; SHARDS] = Default::default();
        // The root's id is slot 0 of shard 0; the slot itself stays empty and out of the index.
        shards[0].lock().reserve_first();
        Self {
            root,
            shards,
            hasher: DefaultHashBuilder::default(),
            held: AtomicU64::new(0),
            hand: AtomicU32::new(0),
        }
    }

    fn hash(&self, node: &Node) -> u64 {
        self.hash_of(node.mount, node.ino)
    }

    fn hash_of(&self, mount: u16, ino: u64) -> u64 {
        use std::hash::BuildHasher;
        self.hasher.hash_one((mount, ino))
    }

    /// The id of the node of this inode, made where there is none. Counts one lookup.
    ///
    /// # Errors
    /// ENFILE where ids have run out (about four billion nodes).
    pub fn acquire(&self, node: Node) -> Result<NodeId, Errno> {
        let hash = self.hash(&node);
        let number = shard_of(hash);
        let (local, generation, new) =
            self.shards[number].lock().acquire(hash, node, |node| self.hash(node)).ok_or(Errno::NFILE)?;
        if new {
            self.held.fetch_add(1, Ordering::Relaxed);
        }
        Ok(NodeId::new(number, local, generation))
    }

    /// The id of the node of this inode, where there is one.
    pub fn find(&self, node: &Node) -> Option<NodeId> {
        let hash = self.hash(node);
        let number = shard_of(hash);
        let (local, generation) = self.shards[number].lock().find(hash, node)?;
        Some(NodeId::new(number, local, generation))
    }

    /// Whether a node of this inode number is held: the other side likely knows it, and need not be told again.
    pub fn holds(&self, mount: u16, ino: u64) -> bool {
        let hash = self.hash_of(mount, ino);
        self.shards[shard_of(hash)].lock().holds(hash, mount, ino)
    }

    /// The node of an id.
    ///
    /// # Errors
    /// ESTALE where the id names none (any more).
    pub fn get(&self, id: NodeId) -> Result<Node, Errno> {
        if id == NodeId::ROOT {
            return Ok(self.root.clone());
        }
        let (shard, local, generation) = id.parts().ok_or(Errno::STALE)?;
        self.shards[shard].lock().get(local, generation).ok_or(Errno::STALE)
    }

    /// Takes lookups back. With the last the node is gone, and is handed out for cleaning up.
    pub fn forget(&self, id: NodeId, lookups: u64) -> Option<Node> {
        if id == NodeId::ROOT {
            return None;
        }
        let (shard, local, generation) = id.parts()?;
        let gone = self.shards[shard].lock().forget(local, generation, lookups, |node| self.hash(node))?;
        self.held.fetch_sub(1, Ordering::Relaxed);
        Some(gone)
    }

    /// Nodes held, the root not counted.
    pub fn len(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// No node but the root is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that the table occupies.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.shards.iter().map(|shard| shard.lock().memory()).sum::<usize>()
    }

    /// Up to `count` nodes that were not used since the last call went by them (second chance).
    pub fn cold(&self, count: usize) -> Vec<NodeId> {
        let mut cold = Vec::new();
        let share = count.div_ceil(SHARDS);
        for round in 0..2 * SHARDS {
            // The first time around may only have cleared marks.
            if cold.len() >= count || (round == SHARDS && !cold.is_empty()) {
                break;
            }
            let number = self.hand.fetch_add(1, Ordering::Relaxed) as usize % SHARDS;
            let found = self.shards[number].lock().cold(share.min(count - cold.len()));
            cold.extend(found.into_iter().map(|(local, generation)| NodeId::new(number, local, generation)));
        }
        cold
    }
}
