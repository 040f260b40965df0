//! The trait of the nodes in a table.

use std::hash::Hash;
use std::sync::Arc;

use crate::NodeId;

/// The state that a file system keeps for an inode in a [`NodeTable`](super::NodeTable): its number, the location of its data, an
/// `Arc` of something larger.
///
/// All methods, and `clone`, run with a shard of the table locked: they must be fast, and must not call the table. (Dropping a
/// node runs unlocked and may call the table.)
pub trait TableNode {
    /// The lookup key of the node.
    type Key: Hash + Eq;

    /// Returns the key, usually the inode number. It must not change while the node is in the table.
    fn key(&self) -> Self::Key;

    /// Reports whether two nodes with equal keys are the same inode. Returns `false` where an inode number was reused and the old
    /// inode is still in the table.
    fn is_same(&self, other: &Self) -> bool {
        let _ = other;
        true
    }

    /// Returns the id of this inode that is valid everywhere: in this table, after it was forgotten, in another process. `None`:
    /// the table assigns one, which is valid until it is forgotten.
    ///
    /// One of the three highest bits must be set: ids below are the table's own. An id that violates this counts as `None`, and
    /// so does one that another node has at the time. It must not change while the node is in the table.
    fn id(&self) -> Option<NodeId> {
        None
    }

    /// Returns the key of the node that has this [`id`](Self::id). Any number may be passed; `None` where it is not a valid id.
    fn key_of(id: NodeId) -> Option<Self::Key> {
        let _ = id;
        None
    }

    /// Returns the bytes that the node holds on the heap, for [`NodeTable::memory`](super::NodeTable::memory). They must not
    /// change while the node is in the table.
    fn heap(&self) -> usize {
        0
    }
}

impl<N: TableNode> TableNode for Arc<N> {
    type Key = N::Key;

    fn key(&self) -> N::Key {
        (**self).key()
    }

    fn is_same(&self, other: &Self) -> bool {
        (**self).is_same(other)
    }

    fn id(&self) -> Option<NodeId> {
        (**self).id()
    }

    fn key_of(id: NodeId) -> Option<N::Key> {
        N::key_of(id)
    }

    fn heap(&self) -> usize {
        // The two reference counts precede the node.
        2 * size_of::<usize>() + size_of::<N>() + (**self).heap()
    }
}
