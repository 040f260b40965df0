//! Pinned names: paths to mount points inside the mount, which resolve to the same node whatever happens to them in the
//! source.
//!
//! The kernel detaches a mount when a name above it is looked up again and resolves to another inode or to none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use shunt_fuse::NodeId;

/// Map from directory and name to the pinned node.
#[derive(Debug, Default)]
pub struct Pins {
    names: RwLock<HashMap<NodeId, HashMap<Vec<u8>, NodeId>>>,
    /// Number of directories with pinned names. Usually 0, so a lookup takes no lock.
    count: AtomicUsize,
}

impl Pins {
    /// Returns the node that a name is pinned to.
    pub fn get(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.names.read().get(&dir)?.get(name).copied()
    }

    /// Replaces all pinned names.
    pub fn set(&self, pins: impl Iterator<Item = (NodeId, Vec<u8>, NodeId)>) {
        let mut fresh: HashMap<NodeId, HashMap<Vec<u8>, NodeId>> = HashMap::new();
        for (dir, name, node) in pins {
            fresh.entry(dir).or_default().insert(name, node);
        }
        let mut names = self.names.write();
        self.count.store(fresh.len(), Ordering::Relaxed);
        *names = fresh;
    }
}
