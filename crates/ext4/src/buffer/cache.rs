//! Metadata blocks in memory: bounded, sharded, and checked on the way in.
//!
//! The lock of a shard is the last of all locks: nothing else is taken, and no device is asked, while it is held.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;

use super::BlockKind;
use super::sync::{AtomicU32, Mutex, MutexGuard};
use crate::cache_padded::{CachePadded, SHARDS, shard_of};
use crate::error::Result;

/// Bytes of a block; readers and commits keep them as they were while somebody changes the block.
pub(crate) type Bytes = Arc<[u8]>;

#[derive(Debug)]
struct Buffer {
    bytes: Bytes,
    seal: BlockKind,
    used: bool,
    /// Changed by the running transaction.
    dirty: bool,
    /// Of the transaction that is being committed.
    committing: bool,
}

impl Buffer {
    fn pinned(&self) -> bool {
        self.dirty || self.committing
    }
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    held: HashMap<u64, Buffer>,
    /// The numbers held, in a ring for the hand that looks for unused ones.
    ring: Vec<u64>,
    hand: usize,
    /// What the running transaction changed; may name blocks that were forgotten since.
    dirty: Vec<u64>,
    /// Committed to the log, and not in its place on the device yet.
    pending: HashMap<u64, Bytes>,
    /// Counts changes that are no longer pinned here: what was read from elsewhere before may be old.
    departures: u64,
}

/// Steps of the hand for one block that comes in. Where all it meets is pinned the cache outgrows its bound, by what
/// one transaction may change.
const STEPS: usize = 64;

pub(super) struct Cache {
    shards: [CachePadded<Mutex<Shard>>; SHARDS],
    /// Blocks that a shard should hold.
    room: usize,
    dirty: CachePadded<AtomicU32>,
}

/// Tells whether a block that was looked for elsewhere is still what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u64);

/// What a shard knows of a block.
pub(super) enum Lookup {
    Here(Bytes, BlockKind),
    /// Not in the cache, but newer than what the device has.
    Pending(Bytes, Generation),
    /// On the device.
    OnDisk(Generation),
}

impl Cache {
    pub(super) fn new(blocks: usize) -> Self {
        let shards = std::array::from_fn(|_| CachePadded::default());
        Self { shards, room: (blocks / SHARDS).max(4), dirty: CachePadded::default() }
    }

    fn shard(&self, number: u64) -> MutexGuard<'_, Shard> {
        self.shards[shard_of(number)].lock()
    }

    /// Blocks that the running transaction changed.
    pub(super) fn dirty(&self) -> u32 {
        self.dirty.load(Ordering::Relaxed)
    }

    pub(super) fn look(&self, number: u64) -> Lookup {
        let mut shard = self.shard(number);
        if let Some(held) = shard.held.get_mut(&number) {
            held.used = true;
            return Lookup::Here(held.bytes.clone(), held.seal);
        }
        match shard.pending.get(&number) {
            Some(bytes) => Lookup::Pending(bytes.clone(), Generation(shard.departures)),
            None => Lookup::OnDisk(Generation(shard.departures)),
        }
    }

    /// The bytes, now verified as `seal` says.
    pub(super) fn reseal(&self, number: u64, seal: BlockKind) {
        if let Some(held) = self.shard(number).held.get_mut(&number) {
            held.seal = seal;
        }
    }

    /// Takes in a block that was read; `false` where it may be old by now, and must be looked for again.
    pub(super) fn insert(&self, number: u64, bytes: Bytes, seal: BlockKind, departures: Generation) -> bool {
        let mut shard = self.shard(number);
        if departures.0 != shard.departures || shard.held.contains_key(&number) {
            return false;
        }
        shard.put(number, Buffer { bytes, seal, used: false, dirty: false, committing: false }, self.room);
        true
    }

    /// Changes a block that is held with this seal; `None` where it is not.
    pub(super) fn change<R>(
        &self,
        number: u64,
        seal: BlockKind,
        change: impl FnOnce(&mut [u8]) -> Result<R>,
    ) -> Option<Result<R>> {
        let mut shard = self.shard(number);
        let shard = &mut *shard;
        let held = shard.held.get_mut(&number).filter(|held| held.seal == seal)?;
        held.used = true;
        let result = change(Arc::make_mut(&mut held.bytes));
        if result.is_ok() && !std::mem::replace(&mut held.dirty, true) {
            shard.dirty.push(number);
            self.dirty.fetch_add(1, Ordering::Relaxed);
        }
        Some(result)
    }

    /// A block whose content is new.
    pub(super) fn create(&self, number: u64, bytes: Bytes, seal: BlockKind) {
        let mut shard = self.shard(number);
        let shard = &mut *shard;
        let new = Buffer { bytes, seal, used: true, dirty: true, committing: false };
        let was_dirty = match shard.held.get_mut(&number) {
            Some(held) => {
                let committing = held.committing;
                std::mem::replace(held, Buffer { committing, ..new }).dirty
            }
            None => {
                shard.put(number, new, self.room);
                false
            }
        };
        if !was_dirty {
            shard.dirty.push(number);
            self.dirty.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Drops a block. What is committed of it stays until the transaction that drops it is committed too.
    pub(super) fn forget(&self, number: u64) {
        let mut shard = self.shard(number);
        shard.departures += 1;
        if shard.held.remove(&number).is_some_and(|held| held.dirty) {
            self.dirty.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes what the running transaction changed, in the order of the device. Nobody changes anything meanwhile.
    pub(super) fn freeze(&self) -> Vec<(u64, Bytes)> {
        let mut frozen = Vec::with_capacity(self.dirty() as usize);
        for shard in &self.shards {
            let mut shard = shard.lock();
            let shard = &mut *shard;
            for number in shard.dirty.drain(..) {
                // A block may be named twice, where it was forgotten and made anew.
                let Some(held) = shard.held.get_mut(&number).filter(|held| held.dirty) else { continue };
                held.dirty = false;
                held.committing = true;
                frozen.push((number, held.bytes.clone()));
            }
        }
        self.dirty.store(0, Ordering::Relaxed);
        frozen.sort_unstable_by_key(|(number, _)| *number);
        frozen
    }

    /// The frozen blocks last: in the log where `logged`, else in their places.
    pub(super) fn committed(&self, frozen: Vec<(u64, Bytes)>, logged: bool) {
        for (number, bytes) in frozen {
            let mut shard = self.shard(number);
            shard.departures += 1;
            if let Some(held) = shard.held.get_mut(&number) {
                held.committing = false;
            }
            if logged {
                shard.pending.insert(number, bytes);
            }
        }
    }

    /// The block was freed, and that is committed: what the log has of it is of no use.
    pub(super) fn revoked(&self, number: u64) {
        self.shard(number).pending.remove(&number);
    }

    /// What is to be written to its place, in the order of the device.
    pub(super) fn pending(&self) -> Vec<(u64, Bytes)> {
        let mut pending = Vec::new();
        for shard in &self.shards {
            pending.extend(shard.lock().pending.iter().map(|(number, bytes)| (*number, bytes.clone())));
        }
        pending.sort_unstable_by_key(|(number, _)| *number);
        pending
    }

    /// These blocks are in their places.
    pub(super) fn placed(&self, written: &[(u64, Bytes)]) {
        for (number, bytes) in written {
            let mut shard = self.shard(*number);
            if shard.pending.get(number).is_some_and(|pending| Arc::ptr_eq(pending, bytes)) {
                shard.pending.remove(number);
            }
        }
    }
}

impl Shard {
    fn put(&mut self, number: u64, held: Buffer, room: usize) {
        let mut steps = STEPS;
        while self.ring.len() >= room && steps > 0 {
            steps -= 1;
            let place = self.hand % self.ring.len();
            let held = self.held.get_mut(&self.ring[place]);
            if held.is_some_and(|held| held.pinned() || std::mem::take(&mut held.used)) {
                self.hand = place + 1;
            } else {
                self.held.remove(&self.ring[place]);
                self.ring.swap_remove(place);
            }
        }
        self.ring.push(number);
        self.held.insert(number, held);
    }
}
