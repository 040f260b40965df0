//! A table of the inodes that the kernel knows, with lookup counts, for file systems that keep state for each inode.

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
use shunt_sharded::Sharded;

use crate::{Errno, NodeId};
pub use node::TableNode;
use node_id::SHARDS;
use shard::{Shard, Slot};

/// The inodes that the kernel knows: assigns their ids, counts lookups, and drops an inode with its last one.
///
/// The kernel refers to an inode by the id that an [`Entry`](crate::Entry) introduced, until FORGET has returned every lookup of
/// it. The table does that bookkeeping, and finds the state that the file system keeps for an inode, its *node*:
///
/// | request | call |
/// |---|---|
/// | every `Entry` handed out: lookup, create, mkdir, link, readdirplus, ... | [`acquire`](Self::acquire) |
/// | every request that names a node | [`get`](Self::get) |
/// | forget; an `Entry` that is not handed out after all | [`forget`](Self::forget) |
/// | more nodes than there should be | [`cold`](Self::cold), then [`Caches::prune`](crate::Caches::prune) |
///
/// - An inode has one id at a time, and an id is never reused for another inode. An id that is outdated or made up fails with
///   ESTALE.
/// - The table assigns ids below 2^61, unless the node defines one ([`TableNode::id`]): such an inode has the same id each time,
///   and the id encodes what the file system needs to find it again. File handles that outlive FORGET require that, and so does a
///   daemon that continues after another one ended ([`revive`](Self::revive)).
/// - A node costs [`SLOT`](Self::SLOT) bytes, 6 to 12 in the index, and its own [`heap`](TableNode::heap). Memory grows in small
///   chunks with the maximum number of nodes held at once, and is reused, not returned.
/// - Any thread may call at any time: the table has 32 shards, each with its own lock that is held briefly.
///
/// The root is passed to the constructor, has the id [`NodeId::ROOT`], and is never forgotten.
///
/// # Example
///
/// A directory in which every number is a file. The table stays small, however many files are visited.
///
/// ```
/// use shunt_fuse::{
///     Attributes, Entry, Errno, Expiry, FileHandle, FileSystem, FileType, Name, NodeId, NodeTable, Request, TableNode,
/// };
///
/// /// The record of an inode; larger nodes go into an `Arc`.
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
///         // FORGETs arrive with a delay, so they are requested occasionally, not at every lookup.
///         let held = self.nodes.len();
///         if held > 10_000 && held % 100 == 0 {
///             request.session().caches().prune(&self.nodes.cold(200));
///         }
///         Ok(Entry::new(id, attributes, Expiry::FOREVER))
///     }
///
///     fn forget(&self, node: NodeId, lookups: u64) {
///         // The returned node was removed from the table: clean up its resources here.
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
    /// A node's hash is hashed again to select its shard: the table within a shard uses the low bits and the top seven, and any
    /// single bit may be equal for all of a sequence of numbers, depending on the keys of the hasher.
    shards: Sharded<Mutex<Shard<N>>, SHARDS>,
    hasher: DefaultHashBuilder,
    count: AtomicU64,
    hand: AtomicU32,
}

impl<N> NodeTable<N> {
    /// Bytes of one slot: the node and 16 bytes, plus padding. A node with a niche (a `Box`, an enum, a bool) of up to 48 bytes
    /// fits in a cache line of 64.
    pub const SLOT: usize = size_of::<Slot<N>>();
}

impl<N: TableNode> NodeTable<N> {
    /// Makes a table that holds `root` only.
    pub fn new(root: N) -> Self {
        Self::beginning_with(root, 0)
    }

    /// Makes a table as [`new`](Self::new) does, where the kernel may still use ids of an earlier process. Ids that the table
    /// assigns start at `epoch`, preferably a random number, so that the earlier ones fail with ESTALE.
    pub fn beginning_with(root: N, epoch: u32) -> Self {
        let shard = |number| Mutex::new(Shard::new(number, node_id::generation_of(epoch)));
        let shards = Sharded::from_fn(shard);
        // The root's id is slot 0 of shard 0; the slot itself stays empty and is not indexed.
        shards.by_low_bits(0).lock().reserve_first();
        Self {
            root,
            shards,
            hasher: DefaultHashBuilder::default(),
            count: AtomicU64::new(0),
            hand: AtomicU32::new(0),
        }
    }

    fn hash(&self, node: &N) -> u64 {
        self.hasher.hash_one(node.key())
    }

    /// Returns the id of this inode's node, which is added where the table has none; an existing node is kept. Counts one lookup.
    ///
    /// The id is never [`NodeId::ROOT`], not even for a node that equals the root: the kernel does not accept the root in a
    /// reply.
    ///
    /// # Errors
    /// ENFILE where all slots are in use: 4 billion nodes.
    pub fn acquire(&self, node: N) -> Result<NodeId, Errno> {
        self.add(node, 1)
    }

    /// Adds a node as [`acquire`](Self::acquire) does, but counts no lookup: the kernel knows it from an earlier process, and the
    /// number of lookups is unknown. The first FORGET that leaves no counted lookup removes it; if the kernel still holds it, the
    /// next request revives it again.
    ///
    /// # Errors
    /// The errors of [`acquire`](Self::acquire).
    pub fn revive(&self, node: N) -> Result<NodeId, Errno> {
        self.add(node, 0)
    }

    fn add(&self, node: N, lookups: u64) -> Result<NodeId, Errno> {
        let hash = self.hash(&node);
        let mut node = Some(node);
        let mut shard = self.shards.by_hash(hash).lock();
        let id = shard.acquire(hash, &mut node, lookups, |node| self.hash(node)).ok_or(Errno::NFILE)?;
        if node.is_none() {
            // Counted before any thread can forget it.
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(id)
    }

    /// Returns the id of this inode's node, if the table holds one. Counts no lookup, so the id may become invalid at any moment.
    pub fn find(&self, node: &N) -> Option<NodeId> {
        let hash = self.hash(node);
        self.shards.by_hash(hash).lock().find(hash, node)
    }

    /// Reports whether the table holds a node of this key: the kernel then likely knows the inode.
    pub fn contains(&self, key: &N::Key) -> bool {
        let hash = self.hasher.hash_one(key);
        self.shards.by_hash(hash).lock().contains(hash, key)
    }

    /// Returns a copy of the node with this id.
    ///
    /// # Errors
    /// ESTALE where the id belongs to no node (any more).
    pub fn get(&self, id: NodeId) -> Result<N, Errno>
    where
        N: Clone,
    {
        if id == NodeId::ROOT {
            return Ok(self.root.clone());
        }
        self.slot(id, |shard, local| shard.get(local)).ok_or(Errno::STALE)
    }

    /// Calls `work` with the slot of an id, where there is one.
    fn slot<T>(&self, id: NodeId, work: impl FnOnce(&mut Shard<N>, u32) -> Option<T>) -> Option<T> {
        if node_id::is_own(id) {
            let (number, slot) = node_id::parts(id)?;
            let mut shard = self.shards.by_low_bits(number as u64).lock();
            let local = shard.slot_of_id(slot)?;
            work(&mut shard, local)
        } else {
            let hash = self.hasher.hash_one(N::key_of(id)?);
            let mut shard = self.shards.by_hash(hash).lock();
            let local = shard.derived(hash, id)?;
            work(&mut shard, local)
        }
    }

    /// Drops `lookups` lookups of a node. With the last one the node is removed and returned, for cleanup. Unknown ids, and the
    /// root's, are ignored.
    pub fn forget(&self, id: NodeId, lookups: u64) -> Option<N> {
        if id == NodeId::ROOT {
            return None;
        }
        let removed = self.slot(id, |shard, local| shard.forget(local, lookups, |node| self.hash(node)))?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(removed)
    }

    /// Returns the number of nodes, not counting the root.
    pub fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Reports whether the table holds no node but the root.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory of the table in bytes, including the heap of the nodes.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.shards.iter().map(|shard| shard.lock().memory()).sum::<usize>()
    }

    /// Calls `each` for every node but the root, shard by shard: no lock is held while `each` runs.
    pub fn for_each(&self, mut each: impl FnMut(NodeId)) {
        for shard in self.shards.iter() {
            let ids = shard.lock().ids();
            ids.into_iter().for_each(&mut each);
        }
    }

    /// Returns up to `count` nodes that were not used since the last call passed them (second-chance algorithm), for
    /// [`Caches::prune`](crate::Caches::prune). They stay in the table until the kernel forgets them.
    pub fn cold(&self, count: usize) -> Vec<NodeId> {
        let mut cold = Vec::new();
        let share = count.div_ceil(SHARDS);
        for round in 0..2 * SHARDS {
            // The first round may only have cleared marks.
            if cold.len() >= count || (round == SHARDS && !cold.is_empty()) {
                break;
            }
            let shard = self.shards.by_low_bits(self.hand.fetch_add(1, Ordering::Relaxed).into());
            cold.extend(shard.lock().cold(share.min(count - cold.len())));
        }
        cold
    }
}

impl<N: TableNode> fmt::Debug for NodeTable<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeTable").field("nodes", &self.len()).finish_non_exhaustive()
    }
}
