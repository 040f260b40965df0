//! Names that lead where they led, whatever becomes of them in the source: the way to what is mounted in the mount.
//!
//! The kernel takes a mount away when a name above it, looked up again, leads to another inode or to none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use shunt_fuse::NodeId;

/// Names that are pinned.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    names: RwLock<HashMap<NodeId, HashMap<Vec<u8>, NodeId>>>,
    /// How many directories hold any: mostly none, and a lookup is not to take a lock for that.
    count: AtomicUsize,
}

impl Pins {
    /// What a name is pinned to.
    pub(crate) fn get(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.names.read().get(&dir)?.get(name).copied()
    }

    /// Pins these names and no others.
    pub(crate) fn set(&self, pins: impl Iterator<Item = (NodeId, Vec<u8>, NodeId)>) {
        let mut fresh: HashMap<NodeId, HashMap<Vec<u8>, NodeId>> = HashMap::new();
        for (dir, name, node) in pins {
            fresh.entry(dir).or_default().insert(name, node);
        }
        let mut names = self.names.write();
        self.count.store(fresh.len(), Ordering::Relaxed);
        *names = fresh;
    }
}
