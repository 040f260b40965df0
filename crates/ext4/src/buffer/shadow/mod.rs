//! Shadow copies: the uncommitted changes in memory that outlives the process, from which a successor continues.
//!
//! A change that was answered is in the cache of this process until its transaction is committed. If the process is killed
//! before, programs that still run would see it undone. With shadow copies each handle, when it ends, copies the blocks that it
//! has changed into memory that another process holds as well, and publishes them by one store. The process that continues
//! recovers the journal, adds the copies to its first transaction, and commits that.
//!
//! Blocks are shared by handles that run at the same time, so a copy that is made when one ends may contain half of another.
//! With shadow copies handles therefore run one at a time.
//!
//! The memory also holds the outcome of operations that must not be executed twice: see [`Operation`].

mod layout;
mod saved;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};

use super::MetadataCache;
use super::cache::{Bytes, Lookup};
use crate::error::{Error, Result};
use crate::layout::RawSuperblock;
use layout::{
    ABORTED_WORD, BLOCK_BITS_WORD, COMMITTED_WORD, INCOMPLETE_WORD, MAGIC, MAGIC_WORD, PUBLISHED_WORD,
    VERSION, VERSION_WORD,
};

pub use layout::{MAX_OPERATIONS, SHADOW_WORDS, SharedMemory};
pub(crate) use saved::Saved;

/// Block number under which the fields of the superblock are copied that operations change.
const SUPERBLOCK_FIELDS: u64 = u64::MAX;

/// Marks the copy of a block that was freed, in the tagged sequence number.
const FREED: u64 = 1;

/// An operation whose outcome a successor finds, because it must not be executed twice. Its handles that
/// record a value publish it together with their changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Identifies the operation: not 0, and never used for another one.
    pub request: u64,
    /// The place for its outcome, below [`MAX_OPERATIONS`], which no other operation uses until the caller has its reply.
    pub slot: usize,
    /// The value that an earlier process recorded for it.
    pub earlier: Option<u64>,
}

/// The outcome of an operation of an earlier process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The operation.
    pub request: u64,
    /// The place of this record. It must stay unused until the operation cannot be requested again.
    pub slot: usize,
    /// The number of processes since that recorded an outcome.
    pub age: u64,
    /// The inode that was made, linked, removed or replaced (0 if none was), plus [`UNNAMED`] for one that was made without a name;
    /// for shifted extents, the block up to which or from which they are left to move.
    pub value: u64,
}

/// Added to the inode number in the [outcome](Outcome::value) of making an unnamed file.
pub const UNNAMED: u64 = 1 << 32;

thread_local! {
    static OPERATION: Cell<Option<Operation>> = const { Cell::new(None) };
}

/// Runs `run` as this operation.
pub(crate) fn run_as<R>(operation: Operation, run: impl FnOnce() -> R) -> R {
    struct End(Option<Operation>);
    impl Drop for End {
        fn drop(&mut self) {
            OPERATION.set(self.0);
        }
    }
    let _end = End(OPERATION.replace(Some(operation)));
    run()
}

/// Returns what an earlier process recorded for the operation of this thread.
pub(crate) fn earlier() -> Option<u64> {
    OPERATION.get().and_then(|operation| operation.earlier)
}

/// Shadow copies of the changes that are not committed.
pub(crate) struct Shadow {
    memory: SharedMemory,
    block_bits: u32,
    /// The number of processes before this one that recorded an outcome.
    generation: u64,
    /// Held by the handle that runs.
    turn: Mutex<()>,
    copies: Mutex<Copies>,
}

/// The slots in use.
#[derive(Default)]
struct Copies {
    /// Sequence number of the last handle.
    sequence: u64,
    free: Vec<u32>,
    /// The slots from here on were never used.
    unused: u32,
    /// Slots of the running transaction, by block.
    running: HashMap<u64, u32>,
    /// Slots of the transaction that is being committed.
    committing: HashMap<u64, u32>,
}

impl Shadow {
    /// Prepares memory that is not in use yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] for memory of another size.
    pub(crate) fn new(memory: SharedMemory, block_bits: u32) -> Result<Self> {
        if memory.len() != SHADOW_WORDS {
            return Err(Error::Invalid);
        }
        memory[VERSION_WORD].store(VERSION, Ordering::Relaxed);
        memory[BLOCK_BITS_WORD].store(block_bits.into(), Ordering::Relaxed);
        memory[MAGIC_WORD].store(MAGIC, Ordering::Release);
        Ok(Self { memory, block_bits, generation: 0, turn: Mutex::default(), copies: Mutex::default() })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.memory[index]
    }

    /// Waits for the turn of a handle.
    pub(super) fn turn(&self) -> Turn<'_> {
        Turn { shadow: self, _turn: self.turn.lock(), touched: Vec::new(), superblock: false, recorded: None }
    }

    /// Publishes the changes of a handle.
    fn publish<'a>(
        &self,
        changes: impl Iterator<Item = (u64, Option<&'a [u8]>)>,
        outcome: Option<(Operation, u64)>,
    ) {
        let mut copies = self.copies.lock();
        let copies = &mut *copies;
        copies.sequence += 1;
        let sequence = copies.sequence;
        let mut replaced = Vec::new();
        for (block, content) in changes {
            let Some(slot) = copies.take(layout::slots(self.block_bits)) else {
                // A successor cannot continue until the next commit.
                let _ = self.word(INCOMPLETE_WORD).compare_exchange(
                    0,
                    sequence,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                break;
            };
            self.fill(slot, block, sequence, content);
            replaced.extend(copies.running.insert(block, slot));
        }
        if let Some((operation, value)) = outcome {
            let words = layout::operation(&self.memory, operation.slot);
            words[2].store(0, Ordering::Release);
            words[0].store(operation.request, Ordering::Relaxed);
            words[1].store(value, Ordering::Relaxed);
            words[3].store(self.generation, Ordering::Relaxed);
            words[2].store(sequence, Ordering::Release);
        }
        self.word(PUBLISHED_WORD).store(sequence, Ordering::Release);
        // Only now may these be overwritten.
        copies.free.append(&mut replaced);
    }

    fn fill(&self, slot: u32, block: u64, sequence: u64, content: Option<&[u8]>) {
        let [number, tag] = layout::slot(&self.memory, slot);
        tag.store(0, Ordering::Release);
        fence(Ordering::Release);
        number.store(block, Ordering::Relaxed);
        let words = layout::content(&self.memory, self.block_bits, slot);
        for (word, bytes) in words.iter().zip(content.unwrap_or_default().chunks_exact(size_of::<u64>())) {
            word.store(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")), Ordering::Relaxed);
        }
        let freed = if content.is_none() { FREED } else { 0 };
        tag.store(sequence << 1 | freed, Ordering::Release);
    }

    /// Ends the running transaction: its copies are kept until [`committed`](Self::committed). Called while no handle runs.
    pub(super) fn freeze(&self) -> u64 {
        let mut copies = self.copies.lock();
        let running = std::mem::take(&mut copies.running);
        let before = std::mem::replace(&mut copies.committing, running);
        copies.free.extend(before.into_values());
        copies.sequence
    }

    /// Drops the copies of a committed transaction; `sequence` is the result of [`freeze`](Self::freeze).
    pub(super) fn committed(&self, sequence: u64) {
        self.word(COMMITTED_WORD).store(sequence, Ordering::Release);
        let incomplete = self.word(INCOMPLETE_WORD);
        if incomplete.load(Ordering::Acquire) <= sequence {
            incomplete.store(0, Ordering::Release);
        }
        let mut copies = self.copies.lock();
        let committed = std::mem::take(&mut copies.committing);
        copies.free.extend(committed.into_values());
    }

    /// Makes the copies unusable: the transaction was aborted.
    pub(super) fn abort(&self) {
        self.word(ABORTED_WORD).store(1, Ordering::Release);
    }
}

impl Copies {
    fn take(&mut self, slots: u32) -> Option<u32> {
        self.free.pop().or_else(|| {
            let slot = self.unused;
            self.unused += u32::from(slot < slots);
            (slot < slots).then_some(slot)
        })
    }
}

/// The turn of a handle, and the blocks that it has touched.
pub(super) struct Turn<'a> {
    shadow: &'a Shadow,
    _turn: MutexGuard<'a, ()>,
    touched: Vec<u64>,
    superblock: bool,
    recorded: Option<u64>,
}

impl Turn<'_> {
    /// Notes a block that was changed, made or freed.
    pub(super) fn touch(&mut self, block: u64) {
        if self.touched.last() != Some(&block) {
            self.touched.push(block);
        }
    }

    /// Notes that the superblock was changed.
    pub(super) fn touch_superblock(&mut self) {
        self.superblock = true;
    }

    /// Sets the value to publish for the operation.
    pub(super) fn record(&mut self, value: u64) {
        self.recorded = Some(value);
    }

    /// Publishes the complete changes of the handle.
    pub(super) fn publish(&mut self, store: &MetadataCache, superblock: impl FnOnce() -> RawSuperblock) {
        if self.touched.is_empty() && !self.superblock {
            return;
        }
        self.touched.sort_unstable();
        self.touched.dedup();
        let blocks: Vec<(u64, Option<Bytes>)> = self
            .touched
            .drain(..)
            .map(|number| match store.cache.lookup(number) {
                // Changed blocks stay in the cache until they are committed.
                Lookup::Cached(bytes, _) => (number, Some(bytes)),
                Lookup::Pending(..) | Lookup::OnDisk(_) => (number, None),
            })
            .collect();
        let fields = self.superblock.then(|| saved::SuperblockFields::of(&superblock()).bytes());
        let outcome = OPERATION.get().filter(|operation| operation.slot < MAX_OPERATIONS).zip(self.recorded);
        let blocks = blocks.iter().map(|(number, bytes)| (*number, bytes.as_deref()));
        self.shadow.publish(
            blocks.chain(fields.as_ref().map(|fields| (SUPERBLOCK_FIELDS, Some(&fields[..])))),
            outcome,
        );
    }
}
