//! The changes that an earlier process left in its shadow copies.

use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::layout::{
    self, ABORTED_WORD, BLOCK_BITS_WORD, COMMITTED_WORD, INCOMPLETE_WORD, MAGIC, MAGIC_WORD, MAX_OPERATIONS,
    PUBLISHED_WORD, SHADOW_WORDS, SharedMemory, VERSION, VERSION_WORD,
};
use super::{Copies, FREED, Outcome, SUPERBLOCK_FIELDS, Shadow};
use crate::error::{Corruption, Error, Result};
use crate::layout::RawSuperblock;
use crate::superblock::Geometry;

/// Age from which an outcome is dropped: the caller had its reply.
const MAX_OUTCOME_AGE: u64 = 8;

/// The complete changes that an earlier process had not committed, and the outcomes of its operations.
pub(crate) struct Saved {
    /// Content by block; `None` for a block that was freed.
    pub(crate) blocks: Vec<(u64, Option<Vec<u8>>)>,
    pub(crate) superblock: Option<SuperblockFields>,
    pub(crate) outcomes: Vec<Outcome>,
}

/// The fields of the superblock that operations change. Its counts are those of the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SuperblockFields {
    last_orphan: u32,
    feature_compat: u32,
}

impl SuperblockFields {
    pub(super) fn of(raw: &RawSuperblock) -> Self {
        Self { last_orphan: raw.last_orphan.get(), feature_compat: raw.feature_compat.get() }
    }

    pub(super) fn bytes(self) -> [u8; 8] {
        (u64::from(self.last_orphan) | u64::from(self.feature_compat) << 32).to_ne_bytes()
    }

    fn from_word(word: u64) -> Self {
        Self { last_orphan: word as u32, feature_compat: (word >> 32) as u32 }
    }

    pub(crate) fn apply(self, raw: &mut RawSuperblock) {
        raw.last_orphan.set(self.last_orphan);
        raw.feature_compat.set(self.feature_compat);
    }
}

impl Shadow {
    /// Continues with the memory of an earlier process. Its copies stay until the first commit.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the memory is that of another file system or version, if the earlier process had aborted its
    /// transaction, or if a part of its changes found no room.
    pub(crate) fn inherit(memory: SharedMemory, geometry: &Geometry) -> Result<(Self, Saved)> {
        let unusable = |what: &str| -> Error { Corruption::new(format!("shadow copies: {what}")).into() };
        if memory.len() != SHADOW_WORDS {
            return Err(unusable("wrong size"));
        }
        let word = |index: usize| memory[index].load(Ordering::Acquire);
        if word(MAGIC_WORD) != MAGIC || word(VERSION_WORD) != VERSION {
            return Err(unusable("unknown version"));
        }
        if word(BLOCK_BITS_WORD) != u64::from(geometry.block_bits) {
            return Err(unusable("another block size"));
        }
        if word(ABORTED_WORD) != 0 {
            return Err(unusable("the earlier process had aborted its transaction"));
        }
        if word(INCOMPLETE_WORD) != 0 {
            return Err(unusable("a part of the changes found no room"));
        }
        let (published, committed) = (word(PUBLISHED_WORD), word(COMMITTED_WORD));
        let counts = |sequence: u64| sequence > committed && sequence <= published;
        let bits = geometry.block_bits;
        let slots = layout::slots(bits);
        let mut latest: HashMap<u64, (u64, u32)> = HashMap::new();
        for slot in 0..slots {
            let [number, tag] = layout::slot(&memory, slot);
            let tag_value = tag.load(Ordering::Acquire);
            if !counts(tag_value >> 1) {
                // A number above the last published one must not become valid later.
                if tag_value != 0 {
                    tag.store(0, Ordering::Release);
                }
                continue;
            }
            let block = number.load(Ordering::Relaxed);
            if block != SUPERBLOCK_FIELDS {
                geometry.check_blocks(block, 1)?;
            }
            let entry = latest.entry(block).or_insert((tag_value, slot));
            if entry.0 < tag_value {
                *entry = (tag_value, slot);
            }
        }
        let mut saved = Saved { blocks: Vec::new(), superblock: None, outcomes: Vec::new() };
        for (&block, &(tag, slot)) in &latest {
            let words = layout::content(&memory, bits, slot);
            if block == SUPERBLOCK_FIELDS {
                saved.superblock = Some(SuperblockFields::from_word(words[0].load(Ordering::Relaxed)));
                continue;
            }
            let content =
                || words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
            saved.blocks.push((block, (tag & FREED == 0).then(content)));
        }
        let mut generation = 0;
        for slot in 0..MAX_OPERATIONS {
            let words = layout::operation(&memory, slot);
            let sequence = words[2].load(Ordering::Acquire);
            if sequence == 0 {
                continue;
            }
            if sequence > published {
                words[2].store(0, Ordering::Release);
                continue;
            }
            let of = words[3].load(Ordering::Relaxed);
            generation = generation.max(of);
            let (request, value) = (words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed));
            saved.outcomes.push(Outcome { request, slot, age: of, value });
        }
        generation += 1;
        for outcome in &mut saved.outcomes {
            outcome.age = generation.saturating_sub(outcome.age);
        }
        saved.outcomes.retain(|outcome| outcome.age <= MAX_OUTCOME_AGE);
        let running: HashMap<u64, u32> = latest.iter().map(|(block, (_, slot))| (*block, *slot)).collect();
        let used: hashbrown::HashSet<u32> = running.values().copied().collect();
        let copies = Copies {
            sequence: published,
            free: (0..slots).rev().filter(|slot| !used.contains(slot)).collect(),
            unused: slots,
            running,
            committing: HashMap::new(),
        };
        let shadow =
            Self { memory, block_bits: bits, generation, turn: Mutex::default(), copies: Mutex::new(copies) };
        Ok((shadow, saved))
    }
}
