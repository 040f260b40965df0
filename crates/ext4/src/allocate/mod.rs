//! Block and inode allocator.
//!
//! Blocks are first reserved in memory, so that data can be written to them before any transaction references them; a handle then
//! marks them as used. Blocks that a transaction frees are reused only after its commit: a crash before the commit restores their
//! previous owner.

mod bitmap;
mod bitmap_cache;
mod bits;
mod blocks;
mod claim;
mod inodes;
mod orlov;
mod reservation_window;
mod reserved_blocks;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};
use shunt_sharded::CachePadded;

use bitmap_cache::BitmapCache;
use bits::Bits;
pub(crate) use blocks::{Purpose, Reservation};
pub(crate) use reservation_window::Growing;
use reservation_window::ReservationWindows;
pub use reserved_blocks::ReservedAccess;
pub(crate) use reserved_blocks::reserved;

use crate::buffer::{MetadataCache, Tid};
use crate::error::Result;
use crate::group_desc::GroupDesc;

/// Number of blocks that taking or freeing one block or inode may change: bitmap and descriptor.
pub(crate) const TAKE_CREDITS: u32 = 2;

/// Free space of all groups.
pub(crate) struct Allocator {
    groups: Vec<CachePadded<State>>,
    /// Number of blocks that can be reserved, in all groups.
    available: CachePadded<AtomicI64>,
    /// Number of freed blocks that await a commit.
    pending_frees: AtomicI64,
    /// Blocks reserved for metadata, so that a handle never runs out of space in the middle of an operation.
    metadata_reserve: u32,
    /// Blocks reserved for privileged users, in addition to `metadata_reserve`.
    reserved: u64,
    /// Groups whose bitmap is cached.
    bitmap_cache: Mutex<BitmapCache>,
    /// Rotating start of the search for groups of top-level directories.
    spread: AtomicU32,
    windows: ReservationWindows,
}

/// Allocation state of a group. Counts change under the lock, and are read without it to choose a group.
struct State {
    locked: Mutex<Locked>,
    blocks: AtomicU32,
    inodes: AtomicU32,
    directories: AtomicU32,
    /// Upper bound of the longest free run; groups below the requested length are skipped.
    longest: AtomicU32,
}

#[derive(Default)]
struct Locked {
    /// Blocks that cannot be reserved: used, reserved, or awaiting a commit. Built on demand, and evicted as by [`BitmapCache`].
    busy: Option<Bits>,
    /// Number of reserved blocks; `busy` has their positions.
    reserved: u32,
    /// Ranges freed by transactions, the oldest first.
    pending_frees: VecDeque<(Tid, u32, u32)>,
}

/// Upper limit of the blocks reserved for metadata.
const MAX_METADATA_RESERVE_BLOCKS: u64 = 4096;

impl Allocator {
    /// Reads the free counts of all groups, and sets those of the superblock.
    pub(crate) fn new(store: &MetadataCache, reserved: u64) -> Result<Self> {
        let geometry = store.geometry();
        let (mut blocks, mut inodes) = (0, 0);
        let mut groups = Vec::with_capacity(geometry.groups as usize);
        for number in 0..geometry.groups {
            let group = GroupDesc::read(geometry, store, number)?;
            blocks += u64::from(group.free_clusters);
            inodes += u64::from(group.free_inodes);
            groups.push(CachePadded(State {
                locked: Mutex::default(),
                blocks: group.free_clusters.into(),
                inodes: group.free_inodes.into(),
                directories: group.directories.into(),
                longest: group.free_clusters.into(),
            }));
        }
        store.set_free(blocks, inodes);
        Ok(Self {
            groups,
            available: CachePadded(AtomicI64::new(blocks as i64)),
            pending_frees: AtomicI64::new(0),
            metadata_reserve: (geometry.blocks / 50).min(MAX_METADATA_RESERVE_BLOCKS).min(blocks / 4) as u32,
            reserved,
            bitmap_cache: Mutex::new(BitmapCache::new(geometry.blocks_per_group)),
            spread: AtomicU32::new(0),
            windows: ReservationWindows::default(),
        })
    }

    /// Number of blocks that can be reserved.
    fn available(&self) -> i64 {
        self.available.load(Ordering::Relaxed)
    }

    /// Locks a group, builds its bitmap if it is not cached, and makes freed blocks available whose commit has completed.
    fn lock(&self, store: &MetadataCache, number: u32) -> Result<MutexGuard<'_, Locked>> {
        let group = &self.groups[number as usize];
        let mut locked = group.locked.lock();
        if locked.busy.is_none() {
            let bytes = bitmap::read(store, number, bitmap::Map::Blocks)?;
            let mut bits = Bits::new(&bytes, store.geometry().group_blocks(number));
            // Group metadata and the journal count as used, even if the bitmap is corrupt.
            let start = store.geometry().group_start(number);
            let end = start + u64::from(store.geometry().group_blocks(number));
            for (from, to) in store.zone().into_iter().flat_map(|zone| zone.within(start, end)) {
                bits.set((from - start) as u32, (to - from) as u32, true);
            }
            // Freed in the bitmap, but the commit is pending.
            for &(_, start, count) in &locked.pending_frees {
                bits.set(start, count, true);
            }
            // The bitmap corrects the count of the descriptor.
            let zeros = bits.zeros();
            let before = group.blocks.swap(zeros, Ordering::Relaxed);
            self.available.fetch_add(i64::from(zeros) - i64::from(before), Ordering::Relaxed);
            if before != zeros {
                group.longest.store(zeros, Ordering::Relaxed);
            }
            locked.busy = Some(bits);
            self.register_cached(number);
        }
        let committed = store.committed();
        while locked.pending_frees.front().is_some_and(|(tid, ..)| *tid <= committed) {
            let Some((_, start, count)) = locked.pending_frees.pop_front() else { break };
            self.pending_frees.fetch_sub(count.into(), Ordering::Relaxed);
            self.release(group, &mut locked, start, count);
        }
        Ok(locked)
    }

    /// Makes blocks available for reservation again.
    fn release(&self, group: &State, locked: &mut Locked, start: u32, count: u32) {
        if let Some(busy) = &mut locked.busy {
            busy.set(start, count, false);
            let blocks = group.blocks.fetch_add(count, Ordering::Relaxed) + count;
            group.longest.store(blocks, Ordering::Relaxed);
            self.available.fetch_add(count.into(), Ordering::Relaxed);
        }
    }

    /// Registers group `number`, whose lock is held, as cached, and evicts others above the limit.
    fn register_cached(&self, number: u32) {
        let mut cache = self.bitmap_cache.lock();
        cache.push(number);
        // Bounded, in case all cached groups are in use.
        for _ in 0..cache.surplus() * 2 {
            let Some(other) = cache.pop() else { return };
            let locked = if other == number { None } else { self.groups[other as usize].locked.try_lock() };
            match locked {
                Some(mut locked) if locked.reserved == 0 => locked.busy = None,
                _ => cache.push(other),
            }
        }
    }
}
