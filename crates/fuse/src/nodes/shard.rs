//! A shard of the table: a slab in fixed chunks, and a hash index over it. Slots are never moved; a freed slot is reused in its
//! next generation, so that old ids fail. Cold nodes are found by the second-chance (clock) algorithm.

use hashbrown::HashTable;

use super::TableNode;
use super::node_id::{self, SlotId};
use crate::NodeId;

/// Slots of one chunk: chunks are allocated whole, and never moved.
const SLOTS_PER_CHUNK: usize = 256;

/// End of the list of free slots.
const NO_FREE_SLOT: u64 = u64::MAX;

pub(super) struct Slot<N> {
    /// `None`: the slot is free.
    node: Option<N>,
    /// Lookup count; for a free slot, the next free one. Unlike [`ReferenceCounts`](shunt_sharded::ReferenceCounts), it shares a
    /// cache line with the node, which the same request uses.
    lookups: u64,
    generation: u32,
    used: bool,
    /// The node has its own id, not the id of its slot.
    derived: bool,
}

pub(super) struct Shard<N> {
    number: usize,
    /// First generation of every slot.
    first: u32,
    chunks: Vec<Box<[Slot<N>]>>,
    free: u64,
    index: HashTable<u32>,
    heap: usize,
    hand: u32,
}

impl<N: TableNode> Shard<N> {
    pub(super) fn new(number: usize, first: u32) -> Self {
        let index = HashTable::new();
        Self { number, first, chunks: Vec::new(), free: NO_FREE_SLOT, index, heap: 0, hand: 0 }
    }

    fn slot(&self, local: u32) -> Option<&Slot<N>> {
        self.chunks
            .get(local as usize / SLOTS_PER_CHUNK)
            .map(|chunk| &chunk[local as usize % SLOTS_PER_CHUNK])
    }

    fn slot_mut(&mut self, local: u32) -> Option<&mut Slot<N>> {
        self.chunks
            .get_mut(local as usize / SLOTS_PER_CHUNK)
            .map(|chunk| &mut chunk[local as usize % SLOTS_PER_CHUNK])
    }

    /// Returns the slot of a node that has the id of its slot.
    pub(super) fn slot_of_id(&self, id: SlotId) -> Option<u32> {
        let slot = self.slot(id.local)?;
        (slot.generation == id.generation && slot.node.is_some() && !slot.derived).then_some(id.local)
    }

    /// Returns the slot of a node that has its own id, given the hash of its key.
    pub(super) fn derived(&self, hash: u64, id: NodeId) -> Option<u32> {
        let named =
            |slot: &Slot<N>| slot.derived && slot.node.as_ref().is_some_and(|node| node.id() == Some(id));
        self.index.find(hash, |&local| self.slot(local).is_some_and(named)).copied()
    }

    fn id(&self, local: u32) -> Option<NodeId> {
        let slot = self.slot(local)?;
        match slot.derived {
            true => slot.node.as_ref()?.id(),
            false => Some(node_id::id(self.number, SlotId { local, generation: slot.generation })),
        }
    }

    /// Reserves slot 0 permanently.
    pub(super) fn reserve_first(&mut self) {
        let first = self.take_free();
        debug_assert_eq!(first, Some(0));
    }

    fn take_free(&mut self) -> Option<u32> {
        if self.free == NO_FREE_SLOT {
            let start = self.chunks.len() * SLOTS_PER_CHUNK;
            let end = start + SLOTS_PER_CHUNK;
            if end > node_id::MAX_SLOTS_PER_SHARD {
                return None;
            }
            let next = |local| if local + 1 < end { local as u64 + 1 } else { NO_FREE_SLOT };
            let empty = |local| Slot {
                node: None,
                lookups: next(local),
                generation: self.first,
                used: false,
                derived: false,
            };
            self.chunks.push((start..end).map(empty).collect());
            self.free = start as u64;
        }
        let local = self.free as u32;
        self.free = self.slot(local)?.lookups;
        Some(local)
    }

    fn slot_of(&self, hash: u64, node: &N) -> Option<u32> {
        let key = node.key();
        let same = |held: &N| held.key() == key && held.is_same(node);
        self.index.find(hash, |&local| self.node(local).is_some_and(same)).copied()
    }

    /// Returns the id of a node.
    pub(super) fn find(&self, hash: u64, node: &N) -> Option<NodeId> {
        self.id(self.slot_of(hash, node)?)
    }

    /// Reports whether a node of this key is held, whether or not it is the same inode.
    pub(super) fn contains(&self, hash: u64, key: &N::Key) -> bool {
        let same = |held: &N| held.key() == *key;
        self.index.find(hash, |&local| self.node(local).is_some_and(same)).is_some()
    }

    fn node(&self, local: u32) -> Option<&N> {
        self.slot(local)?.node.as_ref()
    }

    /// Finds a node, or takes it out of `node` and adds it; counts `lookups` of it. The caller drops what remains in `node` after
    /// unlocking.
    pub(super) fn acquire(
        &mut self,
        hash: u64,
        node: &mut Option<N>,
        lookups: u64,
        hasher: impl Fn(&N) -> u64,
    ) -> Option<NodeId> {
        let new = node.as_ref()?;
        if let Some(local) = self.slot_of(hash, new) {
            let slot = self.slot_mut(local)?;
            slot.lookups = slot.lookups.saturating_add(lookups);
            slot.used = true;
            return self.id(local);
        }
        let heap = new.heap();
        let derived = new.id().is_some_and(|id| !node_id::is_own(id) && self.derived(hash, id).is_none());
        let local = self.take_free()?;
        let slot = self.slot_mut(local)?;
        slot.node = node.take();
        slot.lookups = lookups;
        slot.used = true;
        slot.derived = derived;
        self.heap += heap;
        let chunks = &self.chunks;
        self.index.insert_unique(hash, local, |&local| rehash(chunks, local, &hasher));
        self.id(local)
    }

    /// Returns a copy of the node, and marks it as used.
    pub(super) fn get(&mut self, local: u32) -> Option<N>
    where
        N: Clone,
    {
        let slot = self.slot_mut(local)?;
        slot.used = true;
        slot.node.clone()
    }

    /// Drops lookups; with the last one, removes and returns the node.
    pub(super) fn forget(&mut self, local: u32, lookups: u64, hasher: impl Fn(&N) -> u64) -> Option<N> {
        let (free, first) = (self.free, self.first);
        let slot = self.slot_mut(local)?;
        // Only a broken peer sends too large a count; the node is removed either way.
        slot.lookups = slot.lookups.saturating_sub(lookups);
        if slot.lookups > 0 {
            return None;
        }
        let node = slot.node.take()?;
        if !slot.derived {
            slot.generation = node_id::next_generation(slot.generation);
        }
        slot.lookups = free;
        // A slot whose generations are used up stays empty forever: that costs one slot per half a billion reuses, and no id is
        // used twice.
        if slot.derived || slot.generation != first {
            self.free = u64::from(local);
        }
        if let Ok(entry) = self.index.find_entry(hasher(&node), |&other| other == local) {
            entry.remove();
        }
        self.heap = self.heap.saturating_sub(node.heap());
        // After a walk over millions of names the index is shrunk.
        if self.index.len() * 8 < self.index.capacity() && self.index.capacity() > 4096 {
            let chunks = &self.chunks;
            self.index.shrink_to(self.index.len() * 2, |&local| rehash(chunks, local, &hasher));
        }
        Some(node)
    }

    /// Returns the ids of all nodes.
    pub(super) fn ids(&self) -> Vec<NodeId> {
        self.index.iter().filter_map(|&local| self.id(local)).collect()
    }

    pub(super) fn memory(&self) -> usize {
        self.chunks.len() * SLOTS_PER_CHUNK * size_of::<Slot<N>>()
            + self.chunks.capacity() * size_of::<Box<[Slot<N>]>>()
            + self.index.allocation_size()
            + self.heap
    }

    /// Moves the clock hand over the slots, clears the marks of the used ones, and collects up to `count` of the others.
    pub(super) fn cold(&mut self, count: usize) -> Vec<NodeId> {
        let slots = (self.chunks.len() * SLOTS_PER_CHUNK) as u32;
        let mut cold = Vec::new();
        for _ in 0..slots {
            if cold.len() >= count {
                break;
            }
            let local = self.hand % slots;
            self.hand = (local + 1) % slots;
            let Some(slot) = self.slot_mut(local) else { break };
            if slot.node.is_some() && !std::mem::take(&mut slot.used) {
                cold.extend(self.id(local));
            }
        }
        cold
    }

    /// Ages a free slot to its last generation.
    #[cfg(test)]
    pub(super) fn age(&mut self, local: u32) {
        let last = node_id::previous_generation(self.first);
        self.slot_mut(local).unwrap().generation = last;
    }
}

/// Returns the hash of a node that is in the index.
fn rehash<N>(chunks: &[Box<[Slot<N>]>], local: u32, hasher: impl Fn(&N) -> u64) -> u64 {
    chunks[local as usize / SLOTS_PER_CHUNK][local as usize % SLOTS_PER_CHUNK].node.as_ref().map_or(0, hasher)
}
