//! A part of the table: a slab in fixed chunks, and an index over it.

use hashbrown::HashTable;

use super::TableNode;
use super::node_id::{self, Place};
use crate::NodeId;

/// Slots of one chunk: chunks are allocated whole, and never moved.
const CHUNK: usize = 256;

/// End of the list of free slots.
const NONE: u64 = u64::MAX;

pub(super) struct Slot<N> {
    /// `None`: the slot is free.
    node: Option<N>,
    /// Of a free slot: the next free one.
    lookups: u64,
    generation: u32,
    used: bool,
    /// The node goes by its own id, not by that of its place.
    derived: bool,
}

pub(super) struct Shard<N> {
    number: usize,
    /// Generation of the first life of every slot.
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
        Self { number, first, chunks: Vec::new(), free: NONE, index, heap: 0, hand: 0 }
    }

    fn slot(&self, local: u32) -> Option<&Slot<N>> {
        self.chunks.get(local as usize / CHUNK).map(|chunk| &chunk[local as usize % CHUNK])
    }

    fn slot_mut(&mut self, local: u32) -> Option<&mut Slot<N>> {
        self.chunks.get_mut(local as usize / CHUNK).map(|chunk| &mut chunk[local as usize % CHUNK])
    }

    /// The slot of a node that goes by the id of its place.
    pub(super) fn placed(&self, place: Place) -> Option<u32> {
        let slot = self.slot(place.local)?;
        (slot.generation == place.generation && slot.node.is_some() && !slot.derived).then_some(place.local)
    }

    /// The slot of a node that goes by its own id, of which its key has this hash.
    pub(super) fn derived(&self, hash: u64, id: NodeId) -> Option<u32> {
        let named =
            |slot: &Slot<N>| slot.derived && slot.node.as_ref().is_some_and(|node| node.id() == Some(id));
        self.index.find(hash, |&local| self.slot(local).is_some_and(named)).copied()
    }

    fn id(&self, local: u32) -> Option<NodeId> {
        let slot = self.slot(local)?;
        match slot.derived {
            true => slot.node.as_ref()?.id(),
            false => Some(node_id::id(self.number, Place { local, generation: slot.generation })),
        }
    }

    /// Takes slot 0 out of use for ever.
    pub(super) fn reserve_first(&mut self) {
        let first = self.take_free();
        debug_assert_eq!(first, Some(0));
    }

    fn take_free(&mut self) -> Option<u32> {
        if self.free == NONE {
            let start = self.chunks.len() * CHUNK;
            let end = start + CHUNK;
            if end > node_id::SLOTS {
                return None;
            }
            let next = |local| if local + 1 < end { local as u64 + 1 } else { NONE };
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

    /// Finds a node.
    pub(super) fn find(&self, hash: u64, node: &N) -> Option<NodeId> {
        self.id(self.slot_of(hash, node)?)
    }

    /// Whether a node of this key is held, be it the same or not.
    pub(super) fn holds(&self, hash: u64, key: &N::Key) -> bool {
        let same = |held: &N| held.key() == *key;
        self.index.find(hash, |&local| self.node(local).is_some_and(same)).is_some()
    }

    fn node(&self, local: u32) -> Option<&N> {
        self.slot(local)?.node.as_ref()
    }

    /// Finds a node, or takes it out of `node` and adds it; counts `lookups` of it. What is left in there is the
    /// caller's to drop, unlocked.
    pub(super) fn acquire(
        &mut self,
        hash: u64,
        node: &mut Option<N>,
        lookups: u64,
        hasher: impl Fn(&N) -> u64,
    ) -> Option<NodeId> {
        let wanted = node.as_ref()?;
        if let Some(local) = self.slot_of(hash, wanted) {
            let slot = self.slot_mut(local)?;
            slot.lookups = slot.lookups.saturating_add(lookups);
            slot.used = true;
            return self.id(local);
        }
        let heap = wanted.heap();
        let derived = wanted.id().is_some_and(|id| !node_id::is_own(id) && self.derived(hash, id).is_none());
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

    /// A copy of the node, which counts as used.
    pub(super) fn get(&mut self, local: u32) -> Option<N>
    where
        N: Clone,
    {
        let slot = self.slot_mut(local)?;
        slot.used = true;
        slot.node.clone()
    }

    /// Takes lookups back; with the last, takes the node out.
    pub(super) fn forget(&mut self, local: u32, lookups: u64, hasher: impl Fn(&N) -> u64) -> Option<N> {
        let (free, first) = (self.free, self.first);
        let slot = self.slot_mut(local)?;
        // A count too large can only be a broken peer; the node is gone either way.
        slot.lookups = slot.lookups.saturating_sub(lookups);
        if slot.lookups > 0 {
            return None;
        }
        let node = slot.node.take()?;
        if !slot.derived {
            slot.generation = node_id::next_generation(slot.generation);
        }
        slot.lookups = free;
        // A slot whose lives are used up stays empty for ever: half a billion cost one slot, and no id is used twice.
        if slot.derived || slot.generation != first {
            self.free = u64::from(local);
        }
        if let Ok(entry) = self.index.find_entry(hasher(&node), |&other| other == local) {
            entry.remove();
        }
        self.heap = self.heap.saturating_sub(node.heap());
        // After a walk over millions of names the index gives its memory back.
        if self.index.len() * 8 < self.index.capacity() && self.index.capacity() > 4096 {
            let chunks = &self.chunks;
            self.index.shrink_to(self.index.len() * 2, |&local| rehash(chunks, local, &hasher));
        }
        Some(node)
    }

    /// The ids of all nodes.
    pub(super) fn ids(&self) -> Vec<NodeId> {
        self.index.iter().filter_map(|&local| self.id(local)).collect()
    }

    pub(super) fn memory(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Slot<N>>()
            + self.chunks.capacity() * size_of::<Box<[Slot<N>]>>()
            + self.index.allocation_size()
            + self.heap
    }

    /// Moves the hand over the slots, clears the marks of those used, and collects up to `count` of the others.
    pub(super) fn cold(&mut self, count: usize) -> Vec<NodeId> {
        let slots = (self.chunks.len() * CHUNK) as u32;
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

    /// Ages a free slot to its last life.
    #[cfg(test)]
    pub(super) fn age(&mut self, local: u32) {
        let last = node_id::previous_generation(self.first);
        self.slot_mut(local).unwrap().generation = last;
    }
}

/// The hash of a node that is in the index.
fn rehash<N>(chunks: &[Box<[Slot<N>]>], local: u32, hasher: impl Fn(&N) -> u64) -> u64 {
    chunks[local as usize / CHUNK][local as usize % CHUNK].node.as_ref().map_or(0, hasher)
}
