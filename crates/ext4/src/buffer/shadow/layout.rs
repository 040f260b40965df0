//! Layout of the shadow copies, as words of 64 bits.
//!
//! | words | meaning |
//! |---|---|
//! | 0 | [`MAGIC`] |
//! | 1 | [`VERSION`] |
//! | 2 | block size, as a power of two |
//! | 3 | sequence number of the last complete handle |
//! | 4 | sequence number up to which everything is committed |
//! | 5 | sequence number of the first handle whose changes found no room since the last commit, or 0 |
//! | 6 | 1 after an abort: the copies are not to be used |
//! | from 64 | [`MAX_OPERATIONS`] of 4 words each: request, value, sequence number (written last, 0 while nothing is there), generation |
//! | then | [`MAX_SLOTS`] of 2 words each: block number, and twice the sequence number (written last, 0 while nothing is there), plus 1 for a block that was freed |
//! | then | the content of the slots, a block each |
//!
//! A slot or an operation counts if its sequence number is above word 4 and not above word 3. Of the slots of a block, the one
//! with the highest number counts.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::buffer::MAX_TRANSACTION_BYTES;

/// Memory that outlives the process, of [`SHADOW_WORDS`] words, zero at first.
pub type SharedMemory = Arc<dyn Deref<Target = [AtomicU64]> + Send + Sync>;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"shunt\0sc");
pub(super) const VERSION: u64 = 1;

pub(super) const MAGIC_WORD: usize = 0;
pub(super) const VERSION_WORD: usize = 1;
pub(super) const BLOCK_BITS_WORD: usize = 2;
pub(super) const PUBLISHED_WORD: usize = 3;
pub(super) const COMMITTED_WORD: usize = 4;
pub(super) const INCOMPLETE_WORD: usize = 5;
pub(super) const ABORTED_WORD: usize = 6;

/// Number of operations whose outcome can be recorded at the same time.
pub const MAX_OPERATIONS: usize = 4096;

/// The running transaction, the one that is being committed, and as much for copies that replace others.
const MAX_COPIED_BYTES: usize = 3 * MAX_TRANSACTION_BYTES;

/// The smallest block, for which there are the most slots.
const MIN_BLOCK_BITS: u32 = 10;

const MAX_SLOTS: usize = MAX_COPIED_BYTES >> MIN_BLOCK_BITS;

const OPERATIONS_AT: usize = 64;
const OPERATION_WORDS: usize = 4;
const SLOTS_AT: usize = OPERATIONS_AT + MAX_OPERATIONS * OPERATION_WORDS;
const SLOT_WORDS: usize = 2;
const CONTENT_AT: usize = SLOTS_AT + MAX_SLOTS * SLOT_WORDS;

/// Size of the memory in words. Its pages are allocated on use.
pub const SHADOW_WORDS: usize = CONTENT_AT + MAX_COPIED_BYTES / size_of::<u64>();

/// Number of slots for this block size.
pub(super) fn slots(block_bits: u32) -> u32 {
    (MAX_COPIED_BYTES >> block_bits) as u32
}

/// The words of an operation: request, value, sequence number, generation.
pub(super) fn operation(words: &[AtomicU64], index: usize) -> &[AtomicU64; OPERATION_WORDS] {
    record(words, OPERATIONS_AT + index * OPERATION_WORDS)
}

/// The words of a slot: block number, tagged sequence number.
pub(super) fn slot(words: &[AtomicU64], index: u32) -> &[AtomicU64; SLOT_WORDS] {
    record(words, SLOTS_AT + index as usize * SLOT_WORDS)
}

/// The words that hold the content of a slot.
pub(super) fn content(words: &[AtomicU64], block_bits: u32, index: u32) -> &[AtomicU64] {
    let length = (1 << block_bits) / size_of::<u64>();
    let start = CONTENT_AT + index as usize * length;
    &words[start..start + length]
}

fn record<const N: usize>(words: &[AtomicU64], at: usize) -> &[AtomicU64; N] {
    words[at..].first_chunk().expect("the record is inside the memory")
}
