//! A bounded cache of open descriptors by node.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use shunt_fuse::NodeId;
use shunt_sharded::Sharded;

struct Entry {
    node: NodeId,
    fd: Arc<OwnedFd>,
    used: bool,
}

#[derive(Default)]
struct Ring {
    entries: Vec<Entry>,
    slots: HashMap<NodeId, usize>,
    hand: usize,
}

const SHARDS: usize = 8;

/// A cache of recently used descriptors with second-chance (clock) eviction.
pub(super) struct FdCache {
    shards: Sharded<Mutex<Ring>, SHARDS>,
    /// Capacity of a shard.
    capacity: usize,
}

impl FdCache {
    /// Creates a cache of about `capacity` descriptors.
    pub(super) fn new(capacity: usize) -> Self {
        Self { shards: Sharded::default(), capacity: capacity.div_ceil(SHARDS).max(1) }
    }

    fn shard(&self, node: NodeId) -> &Mutex<Ring> {
        // The low bits of an id select the shard of the node table, so they are spread evenly.
        self.shards.by_low_bits(node.0)
    }

    /// Returns the cached descriptor of a node.
    pub(super) fn get(&self, node: NodeId) -> Option<Arc<OwnedFd>> {
        let mut ring = self.shard(node).lock();
        let slot = *ring.slots.get(&node)?;
        let entry = ring.entries.get_mut(slot)?;
        entry.used = true;
        Some(entry.fd.clone())
    }

    /// Caches a descriptor; may evict another one.
    pub(super) fn put(&self, node: NodeId, fd: Arc<OwnedFd>) {
        let mut shard = self.shard(node).lock();
        let ring = &mut *shard;
        if ring.slots.contains_key(&node) {
            return;
        }
        let entry = Entry { node, fd, used: false };
        if ring.entries.len() < self.capacity {
            ring.slots.insert(node, ring.entries.len());
            ring.entries.push(entry);
            return;
        }
        loop {
            let slot = ring.hand % ring.entries.len();
            ring.hand = slot + 1;
            if !std::mem::take(&mut ring.entries[slot].used) {
                ring.slots.remove(&ring.entries[slot].node);
                ring.slots.insert(node, slot);
                let evicted = std::mem::replace(&mut ring.entries[slot], entry);
                drop(shard);
                // Closing a deleted file may free it, so it happens outside the lock.
                drop(evicted);
                return;
            }
        }
    }

    /// Drops a node's descriptor.
    pub(super) fn remove(&self, node: NodeId) {
        let mut ring = self.shard(node).lock();
        let Some(slot) = ring.slots.remove(&node) else { return };
        let removed = ring.entries.swap_remove(slot);
        if let Some(moved) = ring.entries.get(slot).map(|entry| entry.node) {
            ring.slots.insert(moved, slot);
        }
        drop(ring);
        drop(removed);
    }

    /// Number of cached descriptors.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
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
            assert!(cache.get(NodeId(1)).is_some(), "an entry in constant use is not evicted");
            assert!(cache.len() <= 64);
        }
        cache.remove(NodeId(1));
        assert!(cache.get(NodeId(1)).is_none());
        for id in 2..=1000 {
            cache.remove(NodeId(id));
        }
        assert_eq!(cache.len(), 0);
    }
}
