//! Metadata buffer cache: bounded and sharded; blocks are verified when they are read into it.
//!
//! The lock of a shard is the innermost lock: no other lock is taken and no device I/O is done while it is held.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use shunt_sharded::{CachePadded, Sharded};

use super::BlockKind;
use super::sync::{AtomicU32, Mutex, MutexGuard};
use crate::error::Result;

/// Content of a block. Copy-on-write: readers and commits keep their version while a handle changes the block.
pub(crate) type Bytes = Arc<[u8]>;

#[derive(Debug)]
struct Buffer {
    bytes: Bytes,
    kind: BlockKind,
    used: bool,
    /// Changed by the running transaction.
    dirty: bool,
    /// Part of the transaction that is being committed.
    committing: bool,
}

impl Buffer {
    fn pinned(&self) -> bool {
        self.dirty || self.committing
    }
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    buffers: HashMap<u64, Buffer>,
    /// Numbers of the cached blocks: the ring of the CLOCK eviction.
    ring: Vec<u64>,
    hand: usize,
    /// Blocks changed by the running transaction; may name blocks that were dropped since.
    dirty: Vec<u64>,
    /// Committed to the journal and not yet checkpointed.
    pending: HashMap<u64, Bytes>,
    /// Number of times that pinned blocks were unpinned. A block read from the device before the last of these may be stale.
    generation: u64,
}

/// Steps of the clock hand per inserted block. If all blocks it passes are pinned, the cache exceeds its bound, by at most the
/// changes of one transaction.
const MAX_CLOCK_STEPS: usize = 64;

const SHARDS: usize = 64;

pub(super) struct Cache {
    shards: Sharded<CachePadded<Mutex<Shard>>, SHARDS>,
    /// Target number of blocks per shard.
    capacity: usize,
    dirty: CachePadded<AtomicU32>,
}

/// State of a shard at a lookup; detects that a block read from the device since then may be stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u64);

/// Result of a lookup.
pub(super) enum Lookup {
    Cached(Bytes, BlockKind),
    /// Not cached, but committed to the journal with content newer than the device has.
    Pending(Bytes, Generation),
    /// Current on the device.
    OnDisk(Generation),
}

impl Cache {
    pub(super) fn new(blocks: usize) -> Self {
        Self { shards: Sharded::default(), capacity: (blocks / SHARDS).max(4), dirty: CachePadded::default() }
    }

    fn shard(&self, number: u64) -> MutexGuard<'_, Shard> {
        self.shards.by_hash(number).lock()
    }

    /// Number of blocks changed by the running transaction.
    pub(super) fn dirty(&self) -> u32 {
        self.dirty.load(Ordering::Relaxed)
    }

    pub(super) fn lookup(&self, number: u64) -> Lookup {
        let mut shard = self.shard(number);
        if let Some(buffer) = shard.buffers.get_mut(&number) {
            buffer.used = true;
            return Lookup::Cached(buffer.bytes.clone(), buffer.kind);
        }
        match shard.pending.get(&number) {
            Some(bytes) => Lookup::Pending(bytes.clone(), Generation(shard.generation)),
            None => Lookup::OnDisk(Generation(shard.generation)),
        }
    }

    /// Records that the block was verified as `kind`.
    pub(super) fn set_kind(&self, number: u64, kind: BlockKind) {
        if let Some(buffer) = self.shard(number).buffers.get_mut(&number) {
            buffer.kind = kind;
        }
    }

    /// Inserts a block that was read; returns `false` if it may be stale and must be looked up again.
    pub(super) fn insert(&self, number: u64, bytes: Bytes, kind: BlockKind, generation: Generation) -> bool {
        let mut shard = self.shard(number);
        if generation.0 != shard.generation || shard.buffers.contains_key(&number) {
            return false;
        }
        shard.put(
            number,
            Buffer { bytes, kind, used: false, dirty: false, committing: false },
            self.capacity,
        );
        true
    }

    /// Changes a block that is cached with this kind; `None` if it is not.
    pub(super) fn change<R>(
        &self,
        number: u64,
        kind: BlockKind,
        change: impl FnOnce(&mut [u8]) -> Result<R>,
    ) -> Option<Result<R>> {
        let mut shard = self.shard(number);
        let shard = &mut *shard;
        let buffer = shard.buffers.get_mut(&number).filter(|buffer| buffer.kind == kind)?;
        buffer.used = true;
        let result = change(Arc::make_mut(&mut buffer.bytes));
        if result.is_ok() && !std::mem::replace(&mut buffer.dirty, true) {
            shard.dirty.push(number);
            self.dirty.fetch_add(1, Ordering::Relaxed);
        }
        Some(result)
    }

    /// Inserts a block with new content.
    pub(super) fn create(&self, number: u64, bytes: Bytes, kind: BlockKind) {
        let mut shard = self.shard(number);
        let shard = &mut *shard;
        let new = Buffer { bytes, kind, used: true, dirty: true, committing: false };
        let was_dirty = match shard.buffers.get_mut(&number) {
            Some(buffer) => {
                let committing = buffer.committing;
                std::mem::replace(buffer, Buffer { committing, ..new }).dirty
            }
            None => {
                shard.put(number, new, self.capacity);
                false
            }
        };
        if !was_dirty {
            shard.dirty.push(number);
            self.dirty.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Drops a block. Its committed content stays until the transaction that drops it is committed too.
    pub(super) fn forget(&self, number: u64) {
        let mut shard = self.shard(number);
        shard.generation += 1;
        if shard.buffers.remove(&number).is_some_and(|buffer| buffer.dirty) {
            self.dirty.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes the changes of the running transaction, ordered by block number. The caller excludes concurrent changes.
    pub(super) fn freeze(&self) -> Vec<(u64, Bytes)> {
        let mut frozen = Vec::with_capacity(self.dirty() as usize);
        for shard in self.shards.iter() {
            let mut shard = shard.lock();
            let shard = &mut *shard;
            for number in shard.dirty.drain(..) {
                // A block can be listed twice if it was dropped and created again.
                let Some(buffer) = shard.buffers.get_mut(&number).filter(|buffer| buffer.dirty) else {
                    continue;
                };
                buffer.dirty = false;
                buffer.committing = true;
                frozen.push((number, buffer.bytes.clone()));
            }
        }
        self.dirty.store(0, Ordering::Relaxed);
        frozen.sort_unstable_by_key(|(number, _)| *number);
        frozen
    }

    /// Marks the frozen blocks as committed: to the journal if `logged`, else at their final locations.
    pub(super) fn committed(&self, frozen: Vec<(u64, Bytes)>, logged: bool) {
        for (number, bytes) in frozen {
            let mut shard = self.shard(number);
            shard.generation += 1;
            if let Some(buffer) = shard.buffers.get_mut(&number) {
                buffer.committing = false;
            }
            if logged {
                shard.pending.insert(number, bytes);
            }
        }
    }

    /// Discards the journal's version of a block whose freeing was committed.
    pub(super) fn revoked(&self, number: u64) {
        self.shard(number).pending.remove(&number);
    }

    /// Returns the blocks to checkpoint, ordered by block number.
    pub(super) fn pending(&self) -> Vec<(u64, Bytes)> {
        let mut pending = Vec::new();
        for shard in self.shards.iter() {
            pending.extend(shard.lock().pending.iter().map(|(number, bytes)| (*number, bytes.clone())));
        }
        pending.sort_unstable_by_key(|(number, _)| *number);
        pending
    }

    /// Marks blocks as checkpointed.
    pub(super) fn checkpointed(&self, written: &[(u64, Bytes)]) {
        for (number, bytes) in written {
            let mut shard = self.shard(*number);
            if shard.pending.get(number).is_some_and(|pending| Arc::ptr_eq(pending, bytes)) {
                shard.pending.remove(number);
            }
        }
    }
}

impl Shard {
    fn put(&mut self, number: u64, buffer: Buffer, capacity: usize) {
        let mut steps = MAX_CLOCK_STEPS;
        while self.ring.len() >= capacity && steps > 0 {
            steps -= 1;
            let slot = self.hand % self.ring.len();
            let candidate = self.buffers.get_mut(&self.ring[slot]);
            if candidate.is_some_and(|buffer| buffer.pinned() || std::mem::take(&mut buffer.used)) {
                self.hand = slot + 1;
            } else {
                self.buffers.remove(&self.ring[slot]);
                self.ring.swap_remove(slot);
            }
        }
        self.ring.push(number);
        self.buffers.insert(number, buffer);
    }
}
