//! A bounded cache of open descriptors by node.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use shunt_fuse::NodeId;

struct Entry {
    node: NodeId,
    fd: Arc<OwnedFd>,
    used: bool,
}

#[derive(Default)]
struct Ring {
    entries: Vec<Entry>,
    places: HashMap<NodeId, usize>,
    hand: usize,
}

const SHARDS: usize = 8;

/// Keeps the descriptors used lately; those not used since the hand last came by go first (second chance).
pub struct FdCache {
    shards: [Mutex<Ring>; SHARDS],
    /// Descriptors per shard.
    room: usize,
}

impl FdCache {
    /// A cache of about `room` descriptors.
    pub fn new(room: usize) -> Self {
        Self { shards: Default::default(), room: room.div_ceil(SHARDS).max(1) }
    }

    fn shard(&self, node: NodeId) -> &Mutex<Ring> {
        // The low bits of an id are those of the node table's shards, which are spread evenly.
        &self.shards[node.0 as usize % SHARDS]
    }

    /// The descriptor of a node, if held.
    pub fn get(&self, node: NodeId) -> Option<Arc<OwnedFd>> {
        let mut ring = self.shard(node).lock();
        let place = *ring.places.get(&node)?;
        let entry = ring.entries.get_mut(place)?;
        entry.used = true;
        Some(entry.fd.clone())
    }

    /// Holds a descriptor; another may have to go.
    pub fn put(&self, node: NodeId, fd: Arc<OwnedFd>) {
        let mut ring = self.shard(node).lock();
        let ring = &mut *ring;
        if ring.places.contains_key(&node) {
            return;
        }
        let entry = Entry { node, fd, used: false };
        if ring.entries.len() < self.room {
            ring.places.insert(node, ring.entries.len());
            ring.entries.push(entry);
            return;
        }
        loop {
            let place = ring.hand % ring.entries.len();
            ring.hand = place + 1;
            if !std::mem::take(&mut ring.entries[place].used) {
                ring.places.remove(&ring.entries[place].node);
                ring.places.insert(node, place);
                ring.entries[place] = entry;
                return;
            }
        }
    }

    /// Lets go of a node's descriptor.
    pub fn remove(&self, node: NodeId) {
        let mut ring = self.shard(node).lock();
        let Some(place) = ring.places.remove(&node) else { return };
        ring.entries.swap_remove(place);
        if let Some(moved) = ring.entries.get(place).map(|entry| entry.node) {
            ring.places.insert(moved, place);
        }
    }

    /// Descriptors held.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    /// No descriptor is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fd() -> Arc<OwnedFd> {
        Arc::new(std::fs::File::open("/dev/null").unwrap().into())
    }

    #[test]
    fn stays_bounded_and_keeps_what_is_used() {
        let cache = FdCache::new(64);
        for id in 1..=1000 {
            cache.put(NodeId(id), fd());
            assert!(cache.get(NodeId(1)).is_some(), "used all the time");
            assert!(cache.len() <= 64);
        }
        cache.remove(NodeId(1));
        assert!(cache.get(NodeId(1)).is_none());
        for id in 2..=1000 {
            cache.remove(NodeId(id));
        }
        assert!(cache.is_empty());
    }
}
