//! Encoding of the ids that the table assigns: shard, slot, and the generation of that slot.

use crate::NodeId;

pub(super) const SHARD_BITS: u32 = 5;
pub(super) const SHARDS: usize = 1 << SHARD_BITS;

/// Maximum number of slots of one shard.
pub(super) const MAX_SLOTS_PER_SHARD: usize = 1 << (u32::BITS - SHARD_BITS);

/// Number of generations of a slot. One less than 29 bits hold, so that the last id stays in the range.
const MAX_GENERATIONS: u32 = (1 << 29) - 1;

/// A slot in one of its generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotId {
    pub(super) local: u32,
    pub(super) generation: u32,
}

/// Reduces a number to a generation.
pub(super) fn generation_of(number: u32) -> u32 {
    number % MAX_GENERATIONS
}

/// Returns the next generation, wrapping around to the first one.
pub(super) fn next_generation(generation: u32) -> u32 {
    generation_of(generation + 1)
}

#[cfg(test)]
pub(super) fn previous_generation(generation: u32) -> u32 {
    generation_of(generation + MAX_GENERATIONS - 1)
}

/// Encodes generation, slot and shard from high to low, plus one, so that the very first slot is the root.
pub(super) fn id(shard: usize, slot: SlotId) -> NodeId {
    let SlotId { local, generation } = slot;
    NodeId((u64::from(generation) << 32 | u64::from(local) << SHARD_BITS | shard as u64) + 1)
}

/// Reports whether an id is one that the table may assign, or could never be valid.
pub(super) fn is_own(id: NodeId) -> bool {
    id.0 >> 61 == 0
}

/// Decodes an id. Any of these numbers except 0 encodes a shard and a slot, whether or not a node is there.
pub(super) fn parts(id: NodeId) -> Option<(usize, SlotId)> {
    let raw = id.0.checked_sub(1)?;
    let slot = SlotId { local: raw as u32 >> SHARD_BITS, generation: (raw >> 32) as u32 };
    Some((raw as usize % SHARDS, slot))
}
