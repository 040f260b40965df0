//! Has the kernel forget what synchronisation changed.

use shunt_fuse::{Caches, NodeId};
use shunt_volume::replica;

pub(crate) struct Told(pub(crate) Caches);

impl replica::Caches for Told {
    fn object_changed(&self, num: u64) {
        drop(self.0.invalidate_node(NodeId(num), None));
    }

    fn link_changed(&self, parent: u64, name: &[u8]) {
        drop(self.0.expire_entry(NodeId(parent), name));
        // The listing, which the kernel may have kept.
        drop(self.0.invalidate_node_whole(NodeId(parent)));
    }

    fn content_changed(&self, num: u64) {
        drop(self.0.invalidate_node_whole(NodeId(num)));
    }
}
