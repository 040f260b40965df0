//! A part of the table: a slab in fixed chunks, and an index over it.

use hashbrown::HashTable;

use super::TableNode;

/// Slots of one chunk: chunks are allocated whole, and never moved.
const CHUNK: usize = 256;

/// Slots of one shard at most.
const MOST: usize = 1 << (u32::BITS - super::SHARD_BITS);

/// A slot whose generations are used up stays empty for ever: 4 billion lives cost one slot, and no id is used twice.
const RETIRED: u32 = u32::MAX;

/// End of the list of free slots.
const NONE: u64 = u64::MAX;

pub(super) struct Slot<N> {
    /// `None`: the slot is free.
    node: Option<N>,
    /// Of a free slot: the next free one.
    lookups: u64,
    generation: u32,
    used: bool,
}

/// A slot in its present life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) local: u32,
    pub(super) generation: u32,
}

pub(super) struct Shard<N> {
    chunks: Vec<Box<[Slot<N>]>>,
    free: u64,
    index: HashTable<u32>,
    heap: usize,
    hand: u32,
}

impl<N> Default for Shard<N> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: NONE, index: HashTable::new(), heap: 0, hand: 0 }
    }
}

impl<N: TableNode> Shard<N> {
    fn slot(&self, local: u32) -> Option<&Slot<N>> {
        self.chunks.get(local as usize / CHUNK).map(|chunk| &chunk[local as usize % CHUNK])
    }

    fn slot_mut(&mut self, local: u32) -> Option<&mut Slot<N>> {
        self.chunks.get_mut(local as usize / CHUNK).map(|chunk| &mut chunk[local as usize % CHUNK])
    }

    fn living(&mut self, place: Place) -> Option<&mut Slot<N>> {
        self.slot_mut(place.local).filter(|slot| slot.generation == place.generation && slot.node.is_some())
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
            if end > MOST {
                return None;
            }
            let next = |local| if local + 1 < end { local as u64 + 1 } else { NONE };
            let empty = |local| Slot { node: None, lookups: next(local), generation: 0, used: false };
            self.chunks.push((start..end).map(empty).collect());
            self.free = start as u64;
        }
        let local = self.free as u32;
        self.free = self.slot(local)?.lookups;
        Some(local)
    }

    /// Finds a node.
    pub(super) fn find(&self, hash: u64, node: &N) -> Option<Place> {
        let key = node.key();
        let same = |held: &N| held.key() == key && held.is_same(node);
        let &local = self.index.find(hash, |&local| self.node(local).is_some_and(same))?;
        Some(Place { local, generation: self.slot(local)?.generation })
    }

    /// Whether a node of this key is held, be it the same or not.
    pub(super) fn holds(&self, hash: u64, key: &N::Key) -> bool {
        let same = |held: &N| held.key() == *key;
        self.index.find(hash, |&local| self.node(local).is_some_and(same)).is_some()
    }

    fn node(&self, local: u32) -> Option<&N> {
        self.slot(local)?.node.as_ref()
    }

    /// Finds a node, or takes it out of `node` and adds it. What is left in there is the caller's to drop, unlocked.
    pub(super) fn acquire(
        &mut self,
        hash: u64,
        node: &mut Option<N>,
        hasher: impl Fn(&N) -> u64,
    ) -> Option<Place> {
        if let Some(place) = self.find(hash, node.as_ref()?) {
            let slot = self.slot_mut(place.local)?;
            slot.lookups = slot.lookups.saturating_add(1);
            slot.used = true;
            return Some(place);
        }
        let heap = node.as_ref()?.heap();
        let local = self.take_free()?;
        let slot = self.slot_mut(local)?;
        slot.node = node.take();
        slot.lookups = 1;
        slot.used = true;
        let generation = slot.generation;
        self.heap += heap;
        let chunks = &self.chunks;
        self.index.insert_unique(hash, local, |&local| rehash(chunks, local, &hasher));
        Some(Place { local, generation })
    }

    /// A copy of the node, which counts as used.
    pub(super) fn get(&mut self, place: Place) -> Option<N>
    where
        N: Clone,
    {
        let slot = self.living(place)?;
        slot.used = true;
        slot.node.clone()
    }

    /// Takes lookups back; with the last, takes the node out.
    pub(super) fn forget(&mut self, place: Place, lookups: u64, hasher: impl Fn(&N) -> u64) -> Option<N> {
        let free = self.free;
        let slot = self.living(place)?;
        // A count too large can only be a broken peer; the node is gone either way.
        slot.lookups = slot.lookups.saturating_sub(lookups);
        if slot.lookups > 0 {
            return None;
        }
        let node = slot.node.take()?;
        slot.generation += 1;
        slot.lookups = free;
        if slot.generation != RETIRED {
            self.free = u64::from(place.local);
        }
        if let Ok(entry) = self.index.find_entry(hasher(&node), |&local| local == place.local) {
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

    pub(super) fn memory(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Slot<N>>()
            + self.chunks.capacity() * size_of::<Box<[Slot<N>]>>()
            + self.index.allocation_size()
            + self.heap
    }

    /// Moves the hand over the slots, clears the marks of those used, and collects up to `count` of the others.
    pub(super) fn cold(&mut self, count: usize) -> Vec<Place> {
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
                cold.push(Place { local, generation: slot.generation });
            }
        }
        cold
    }

    /// Ages a free slot to its last life.
    #[cfg(test)]
    pub(super) fn age(&mut self, local: u32) {
        self.slot_mut(local).unwrap().generation = RETIRED - 1;
    }
}

/// The hash of a node that is in the index.
fn rehash<N>(chunks: &[Box<[Slot<N>]>], local: u32, hasher: impl Fn(&N) -> u64) -> u64 {
    chunks[local as usize / CHUNK][local as usize % CHUNK].node.as_ref().map_or(0, hasher)
}
