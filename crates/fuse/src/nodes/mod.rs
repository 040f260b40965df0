//! A table of the inodes that the kernel knows, for file systems that keep something about each.

mod node;
mod node_id;
mod shard;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;

use crate::{Errno, NodeId};
pub use node::TableNode;
use node_id::{SHARD_BITS, SHARDS};
use shard::{Shard, Slot};

/// Any of its bits alone may be the same for all of a row of numbers, by some of the hash's keys; the table inside of a shard
/// uses the low ones and the top seven.
fn shard_of(hash: u64) -> usize {
    // The golden ratio, as a fraction of 2^64: what it leaves on top depends on all bits.
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SHARD_BITS)) as usize
}

/// The inodes that the kernel knows: it gives out their ids, counts lookups, and lets go of an inode with its last one.
///
/// The kernel names an inode by the id that an [`Entry`](crate::Entry) introduced, until FORGET has taken back every
/// lookup of it. The table does that bookkeeping, and finds what the file system keeps of an inode, its *node*:
///
/// | request | call |
/// |---|---|
/// | every `Entry` handed out: lookup, create, mkdir, link, readdirplus, ... | [`acquire`](Self::acquire) |
/// | every request that names a node | [`get`](Self::get) |
/// | forget; an `Entry` that is not handed out after all | [`forget`](Self::forget) |
/// | more nodes than there should be | [`cold`](Self::cold), then [`Caches::prune`](crate::Caches::prune) |
///
/// - An inode has one id at a time, and an id names one inode ever. An id out of date, or made up, is ESTALE and never
///   another inode.
/// - Ids are the table's choice, below 2^61, unless the node brings one along ([`TableNode::id`]): such an inode has
///   the same id each time, and what a file system needs to find it again can be read from the id. That is what file
///   handles that outlive FORGET take, and a daemon that goes on where another ended ([`revive`](Self::revive)).
/// - A node costs [`SLOT`](Self::SLOT) bytes, 6 to 12 in the index, and its own [`heap`](TableNode::heap). Memory grows
///   in small chunks with the most nodes that were ever held at once, and is reused, not returned.
/// - Any thread may call at any time: the table is made of 32 parts, each with a lock of its own that is held for a
///   moment.
///
/// The root is given at the start, is [`NodeId::ROOT`], and is never forgotten.
///
/// # Example
///
/// A directory in which every number is a file. However many are visited, the table stays small.
///
/// ```
/// use shunt_fuse::{
///     Attributes, Entry, Errno, Expiry, FileHandle, FileSystem, FileType, Name, NodeId, NodeTable, Request, TableNode,
/// };
///
/// /// What is known of an inode; nodes that are larger go into an `Arc`.
/// #[derive(Clone)]
/// enum Node {
///     Directory,
///     Number(u64),
/// }
///
/// impl TableNode for Node {
///     type Key = u64;
///
///     fn key(&self) -> u64 {
///         match self {
///             Node::Directory => 0,
///             Node::Number(number) => *number,
///         }
///     }
/// }
///
/// struct Numbers {
///     nodes: NodeTable<Node>,
/// }
///
/// fn attributes(node: &Node) -> Attributes {
///     let (kind, permissions) = match node {
///         Node::Directory => (FileType::Directory, 0o555),
///         Node::Number(_) => (FileType::Regular, 0o444),
///     };
///     Attributes { ino: node.key() + 1, mode: kind.mode() | permissions, nlink: 1, ..Attributes::default() }
/// }
///
/// impl FileSystem for Numbers {
///     async fn lookup(&self, request: &Request<'_>, _parent: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
///         let name = str::from_utf8(name.as_bytes()).map_err(|_| Errno::NOENT)?;
///         let node = Node::Number(name.parse().ok().filter(|&number| number > 0).ok_or(Errno::NOENT)?);
///         let attributes = attributes(&node);
///         let id = self.nodes.acquire(node)?;
///         // FORGETs take a while to come: asked for now and then, not at every lookup.
///         let held = self.nodes.len();
///         if held > 10_000 && held.is_multiple_of(100) {
///             request.session().caches().prune(&self.nodes.cold(200));
///         }
///         Ok(Entry::new(id, attributes, Expiry::FOREVER))
///     }
///
///     fn forget(&self, node: NodeId, lookups: u64) {
///         // What comes back is gone from the table: the place to clean up behind it.
///         self.nodes.forget(node, lookups);
///     }
///
///     async fn getattr(
///         &self,
///         _request: &Request<'_>,
///         node: NodeId,
///         _handle: Option<FileHandle>,
///     ) -> Result<(Attributes, Expiry), Errno> {
///         Ok((attributes(&self.nodes.get(node)?), Expiry::FOREVER))
///     }
/// }
///
/// let numbers = Numbers { nodes: NodeTable::new(Node::Directory) };
/// # let id = numbers.nodes.acquire(Node::Number(7)).unwrap();
/// # assert_eq!(numbers.nodes.acquire(Node::Number(7)).unwrap(), id);
/// # numbers.forget(id, 1);
/// # assert!(numbers.nodes.get(id).is_ok());
/// # numbers.forget(id, 1);
/// # assert!(matches!(numbers.nodes.get(id), Err(Errno::STALE)));
/// # assert!(matches!(numbers.nodes.get(NodeId::ROOT), Ok(Node::Directory)));
/// ```
pub struct NodeTable<N> {
    root: N,
    shards: [Mutex<Shard<N>>; SHARDS],
    hasher: DefaultHashBuilder,
    held: AtomicU64,
    hand: AtomicU32,
}

impl<N> NodeTable<N> {
    /// Bytes of one slot: the node and 16 bytes, give or take padding. A node with a niche (a `Box`, an enum, a bool)
    /// of up to 48 bytes stays within a cache line of 64.
    pub const SLOT: usize = size_of::<Slot<N>>();
}

impl<N: TableNode> NodeTable<N> {
    /// A table that holds `root` only.
    pub fn new(root: N) -> Self {
        Self::beginning_with(root, 0)
    }

    /// As [`new`](Self::new), where ids of an earlier process may still come: those that the table picks begin at an
    /// `epoch`, best a random number, so that they are ESTALE here.
    pub fn beginning_with(root: N, epoch: u32) -> Self {
        let shard = |number| Mutex::new(Shard::new(number, node_id::generation_of(epoch)));
        let shards: [Mutex<Shard<N>>; SHARDS] = std::array::from_fn(shard);
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

    fn hash(&self, node: &N) -> u64 {
        self.hasher.hash_one(node.key())
    }

    /// The id of this inode's node, which is added where there is none; one that is there stays as it is. Counts one
    /// lookup.
    ///
    /// Never [`NodeId::ROOT`], also not for a node that equals the root: the kernel takes the root for no answer.
    ///
    /// # Errors
    /// ENFILE where slots have run out: 4 billion nodes.
    pub fn acquire(&self, node: N) -> Result<NodeId, Errno> {
        self.add(node, 1)
    }

    /// As [`acquire`](Self::acquire), but counts no lookup: for a node that the kernel knows from an earlier process,
    /// nobody knows how often it was told. The first FORGET that leaves no lookup counted here takes it out again; if
    /// the kernel holds on to it all the same, the next request revives it once more.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn revive(&self, node: N) -> Result<NodeId, Errno> {
        self.add(node, 0)
    }

    fn add(&self, node: N, lookups: u64) -> Result<NodeId, Errno> {
        let hash = self.hash(&node);
        let mut node = Some(node);
        let mut shard = self.shards[shard_of(hash)].lock();
        let id = shard.acquire(hash, &mut node, lookups, |node| self.hash(node)).ok_or(Errno::NFILE)?;
        if node.is_none() {
            // Before anybody can forget it.
            self.held.fetch_add(1, Ordering::Relaxed);
        }
        Ok(id)
    }

    /// The id of this inode's node, where there is one. Counts no lookup, so the id may be gone any moment.
    pub fn find(&self, node: &N) -> Option<NodeId> {
        let hash = self.hash(node);
        self.shards[shard_of(hash)].lock().find(hash, node)
    }

    /// Whether a node of this key is held: the kernel likely knows it, and need not be told again.
    pub fn holds(&self, key: &N::Key) -> bool {
        let hash = self.hasher.hash_one(key);
        self.shards[shard_of(hash)].lock().holds(hash, key)
    }

    /// A copy of the node of an id.
    ///
    /// # Errors
    /// ESTALE where the id names none (any more).
    pub fn get(&self, id: NodeId) -> Result<N, Errno>
    where
        N: Clone,
    {
        if id == NodeId::ROOT {
            return Ok(self.root.clone());
        }
        self.slot(id, |shard, local| shard.get(local)).ok_or(Errno::STALE)
    }

    /// Does something with the slot of an id, where there is one.
    fn slot<T>(&self, id: NodeId, work: impl FnOnce(&mut Shard<N>, u32) -> Option<T>) -> Option<T> {
        if node_id::is_own(id) {
            let (number, place) = node_id::parts(id)?;
            let mut shard = self.shards[number].lock();
            let local = shard.placed(place)?;
            work(&mut shard, local)
        } else {
            let hash = self.hasher.hash_one(N::key_of(id)?);
            let mut shard = self.shards[shard_of(hash)].lock();
            let local = shard.derived(hash, id)?;
            work(&mut shard, local)
        }
    }

    /// Takes lookups back. With the last the node is gone, and is handed out for cleaning up. Ids that name no node,
    /// and the root's, are ignored.
    pub fn forget(&self, id: NodeId, lookups: u64) -> Option<N> {
        if id == NodeId::ROOT {
            return None;
        }
        let gone = self.slot(id, |shard, local| shard.forget(local, lookups, |node| self.hash(node)))?;
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

    /// Bytes of memory that the table occupies, with what the nodes hold.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.shards.iter().map(|shard| shard.lock().memory()).sum::<usize>()
    }

    /// Every node held now, but the root, in parts: no lock is held while `each` runs.
    pub fn for_each(&self, mut each: impl FnMut(NodeId)) {
        for shard in &self.shards {
            let ids = shard.lock().ids();
            ids.into_iter().for_each(&mut each);
        }
    }

    /// Up to `count` nodes that were not used since the last call went by them (second chance), for
    /// [`Caches::prune`](crate::Caches::prune). They stay in the table until the kernel forgets them.
    pub fn cold(&self, count: usize) -> Vec<NodeId> {
        let mut cold = Vec::new();
        let share = count.div_ceil(SHARDS);
        for round in 0..2 * SHARDS {
            // The first time around may only have cleared marks.
            if cold.len() >= count || (round == SHARDS && !cold.is_empty()) {
                break;
            }
            let number = self.hand.fetch_add(1, Ordering::Relaxed) as usize % SHARDS;
            cold.extend(self.shards[number].lock().cold(share.min(count - cold.len())));
        }
        cold
    }
}

impl<N: TableNode> fmt::Debug for NodeTable<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeTable").field("nodes", &self.len()).finish_non_exhaustive()
    }
}
