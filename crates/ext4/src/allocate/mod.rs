//! What is free, and who gets it.
//!
//! Blocks are reserved in memory first, so that data can be written to them before any transaction knows of them; then
//! a handle takes them. Blocks that a transaction frees are given out again once it is committed: until then, a crash
//! would bring back who had them before.

mod bitmap;
mod bitmap_lru;
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

use bitmap_lru::BitmapLru;
use bits::Bits;
pub(crate) use blocks::{For, Reservation};
pub(crate) use reservation_window::Growing;
use reservation_window::ReservationWindows;
pub use reserved_blocks::ReservedAccess;
pub(crate) use reserved_blocks::reserved;

use crate::buffer::{MetadataCache, Tid};
use crate::cache_padded::CachePadded;
use crate::error::Result;
use crate::group_desc::GroupDesc;

/// Blocks that taking or freeing one block or inode may change: bitmap and descriptor.
pub(crate) const TAKE_CREDITS: u32 = 2;

/// What is free in each group.
pub(crate) struct Allocator {
    groups: Vec<CachePadded<State>>,
    /// Blocks that can be reserved, in all groups.
    available: CachePadded<AtomicI64>,
    /// Blocks that were freed, and wait for the commit of that.
    waiting: AtomicI64,
    /// Blocks that only metadata may have: what a handle needs half way must be there.
    kept: u32,
    /// Blocks that, besides, not everybody may have.
    reserved: u64,
    /// Groups of which it is in memory what can be reserved.
    recent: Mutex<BitmapLru>,
    /// Where directories are spread from.
    spread: AtomicU32,
    windows: ReservationWindows,
}

/// A group. Counts are changed under its lock, and read without it to choose one.
struct State {
    locked: Mutex<Locked>,
    blocks: AtomicU32,
    inodes: AtomicU32,
    directories: AtomicU32,
    /// No run of free blocks is longer: spares looking for one in vain.
    longest: AtomicU32,
}

#[derive(Default)]
struct Locked {
    /// Blocks that cannot be reserved: taken, reserved, or waiting. Made when it is needed, and dropped when it was not
    /// for long.
    busy: Option<Bits>,
    /// Blocks that are reserved: only `busy` knows which.
    reserved: u32,
    /// Ranges that were freed by transactions, the oldest first.
    waiting: VecDeque<(Tid, u32, u32)>,
}

/// Most blocks that only metadata may have.
const MAX_CACHED_GROUPS: u64 = 4096;

impl Allocator {
    /// Reads the counts of all groups, and tells the store.
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
            available: CachePadded(AtomicI64::new(blocks.cast_signed())),
            waiting: AtomicI64::new(0),
            kept: (geometry.blocks / 50).min(MAX_CACHED_GROUPS).min(blocks / 4) as u32,
            reserved,
            recent: Mutex::new(BitmapLru::new(geometry.blocks_per_group)),
            spread: AtomicU32::new(0),
            windows: ReservationWindows::default(),
        })
    }

    /// Blocks that can be reserved.
    fn available(&self) -> i64 {
        self.available.load(Ordering::Relaxed)
    }

    /// A group, locked, in which all that may be given out again can be.
    fn lock(&self, store: &MetadataCache, number: u32) -> Result<MutexGuard<'_, Locked>> {
        let group = &self.groups[number as usize];
        let mut locked = group.locked.lock();
        if locked.busy.is_none() {
            let bytes = bitmap::read(store, number, bitmap::Map::Blocks)?;
            let mut bits = Bits::new(&bytes, store.geometry().group_blocks(number));
            // Whatever the bitmap says, metadata of groups and the journal are not free.
            let start = store.geometry().group_start(number);
            let end = start + u64::from(store.geometry().group_blocks(number));
            for (from, to) in store.zone().into_iter().flat_map(|zone| zone.within(start, end)) {
                bits.set((from - start) as u32, (to - from) as u32, true);
            }
            // Free in the bitmap, but not yet to be given out.
            for &(_, start, count) in &locked.waiting {
                bits.set(start, count, true);
            }
            // The descriptor's count is believed nowhere else.
            let zeros = bits.zeros();
            let before = group.blocks.swap(zeros, Ordering::Relaxed);
            self.available.fetch_add(i64::from(zeros) - i64::from(before), Ordering::Relaxed);
            if before != zeros {
                group.longest.store(zeros, Ordering::Relaxed);
            }
            locked.busy = Some(bits);
            self.forget_another(number);
        }
        let committed = store.committed();
        while locked.waiting.front().is_some_and(|(tid, ..)| *tid <= committed) {
            let Some((_, start, count)) = locked.waiting.pop_front() else { break };
            self.waiting.fetch_sub(count.into(), Ordering::Relaxed);
            self.give_back(group, &mut locked, start, count);
        }
        Ok(locked)
    }

    /// These blocks can be reserved again.
    fn give_back(&self, group: &State, locked: &mut Locked, start: u32, count: u32) {
        if let Some(busy) = &mut locked.busy {
            busy.set(start, count, false);
            let blocks = group.blocks.fetch_add(count, Ordering::Relaxed) + count;
            group.longest.store(blocks, Ordering::Relaxed);
            self.available.fetch_add(count.into(), Ordering::Relaxed);
        }
    }

    /// Group `number`, whose lock is held, is in memory now: another one may have to go.
    fn forget_another(&self, number: u32) {
        let mut recent = self.recent.lock();
        recent.push(number);
        // Not for long, where those that stay are in use.
        for _ in 0..recent.surplus() * 2 {
            let Some(other) = recent.pop() else { return };
            let locked = if other == number { None } else { self.groups[other as usize].locked.try_lock() };
            match locked {
                Some(mut locked) if locked.reserved == 0 => locked.busy = None,
                _ => recent.push(other),
            }
        }
    }
}
