//! What a table asks of the nodes in it.

use std::hash::Hash;
use std::sync::Arc;

use crate::NodeId;

/// What a file system keeps of an inode in a [`NodeTable`](super::NodeTable): its number, where its data lies, an `Arc`
/// of something larger.
///
/// All methods, and `clone`, run with a part of the table locked: they are to be quick, and leave the table alone.
/// (Dropping a node is not among them: that may call the table.)
pub trait TableNode {
    /// What the node is found by.
    type Key: Hash + Eq;

    /// The key, most often the inode's number. It stays as it is while the node is in the table.
    fn key(&self) -> Self::Key;

    /// Whether both are one inode, where their keys are equal already. Says no where a number was reused for another
    /// inode and the old one is still known.
    fn is_same(&self, other: &Self) -> bool {
        let _ = other;
        true
    }

    /// The id that this inode has wherever it is met: in this table, after it was forgotten, in another process. `None`:
    /// the table picks one, which is good until it is forgotten.
    ///
    /// One of the three highest bits must be set: the numbers below are the table's own. What breaks that rule counts
    /// as `None`, and so does an id that is taken by another node at the time. Stays as it is while the node is in
    /// the table.
    fn id(&self) -> Option<NodeId> {
        None
    }

    /// The key of the node whose [`id`](Self::id) this is, were it there. Any number may come; `None` where it is
    /// nobody's.
    fn key_of(id: NodeId) -> Option<Self::Key> {
        let _ = id;
        None
    }

    /// Bytes that the node holds outside of itself, for [`NodeTable::memory`](super::NodeTable::memory). They stay as
    /// they are while the node is in the table.
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
        // The two counts come before the node.
        2 * size_of::<usize>() + size_of::<N>() + (**self).heap()
    }
}
