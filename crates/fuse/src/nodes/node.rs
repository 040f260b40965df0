//! What a table asks of the nodes in it.

use std::hash::Hash;
use std::sync::Arc;

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

    fn heap(&self) -> usize {
        // The two counts come before the node.
        2 * size_of::<usize>() + size_of::<N>() + (**self).heap()
    }
}
