//! Block allocation in two steps: a reservation in memory, then marking blocks as used in a transaction. Freed blocks become
//! available again after the commit that frees them.

use std::sync::atomic::Ordering;

use super::{Allocator, Locked, ReservedAccess, State, bitmap, bitmap::Map};
use crate::buffer::{Handle, MetadataCache};
use crate::error::{Corruption, Error, Result};

/// Number of groups searched for a run of the requested length before shorter runs are accepted.
const MAX_GROUPS_TRIED: u32 = 32;

/// Alignment and minimum length, in blocks, of the free run at which a growing file continues if the blocks behind its last
/// extent are taken. Files that grow side by side thus have extents of at least this length, without tracking which files grow.
const GROWTH_RUN_BLOCKS: u32 = 64;

/// Purpose of an allocation; decides which blocks it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Data,
    /// Data that directly follows other data of the file.
    Growth,
    /// Metadata needed in the middle of an operation: may use the last free blocks.
    Metadata,
}

/// A run of blocks withheld from other allocations until it is taken or dropped.
pub(crate) struct Reservation<'a> {
    pub(super) allocator: &'a Allocator,
    pub(super) group: u32,
    /// Offset within the group.
    pub(super) at: u32,
    /// First block, numbered from the start of the device.
    pub(crate) start: u64,
    pub(crate) count: u32,
}

impl Allocator {
    /// Reserves up to `want` consecutive blocks, as close behind `goal` as possible.
    ///
    /// # Errors
    /// [`Error::NoSpace`], also if freed blocks that await a commit would suffice.
    pub(crate) fn reserve(
        &self,
        store: &MetadataCache,
        goal: u64,
        want: u32,
        purpose: (Purpose, ReservedAccess),
    ) -> Result<Reservation<'_>> {
        match self.reserve_free(store, goal, want, purpose) {
            Err(Error::NoSpace) if self.release_windows() => self.reserve_free(store, goal, want, purpose),
            result => result,
        }
    }

    fn reserve_free(
        &self,
        store: &MetadataCache,
        goal: u64,
        want: u32,
        (purpose, rights): (Purpose, ReservedAccess),
    ) -> Result<Reservation<'_>> {
        let left = self.available_for(purpose, rights);
        if left <= 0 {
            return Err(Error::NoSpace);
        }
        let want = i64::from(want.max(1)).min(left) as u32;
        let geometry = store.geometry();
        let first = u64::from(geometry.first_data_block);
        let goal = goal.clamp(first, geometry.blocks - 1) - first;
        let per_group = u64::from(geometry.blocks_per_group);
        let (home, bit) = ((goal / per_group) as u32, (goal % per_group) as u32);
        let groups = self.groups.len() as u32;
        // First a run of `want` blocks at or near the goal, then any free block.
        for (least, max_groups) in [(want, MAX_GROUPS_TRIED), (1, groups)] {
            let mut left = max_groups;
            for step in 0..groups {
                let number = (home + step) % groups;
                let group = &self.groups[number as usize];
                if group.longest.load(Ordering::Relaxed) < least && step > 0 {
                    continue;
                }
                let mut locked = self.lock(store, number)?;
                let from = if step == 0 { bit } else { 0 };
                if let Some((at, count)) = self.reserve_in(group, &mut locked, from, (want, least), purpose) {
                    let start = geometry.group_start(number) + u64::from(at);
                    return Ok(Reservation { allocator: self, group: number, at, start, count });
                }
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
        Err(Error::NoSpace)
    }

    /// Number of blocks available for this purpose; negative if fewer are free than must be kept back.
    fn available_for(&self, purpose: Purpose, rights: ReservedAccess) -> i64 {
        let reserve = match (purpose, rights) {
            (Purpose::Metadata, ReservedAccess::Reserved) => 0,
            (_, ReservedAccess::Reserved) => self.metadata_reserve.into(),
            (_, ReservedAccess::Common) => {
                i64::from(self.metadata_reserve).saturating_add_unsigned(self.reserved)
            }
        };
        self.available().saturating_sub(reserve)
    }

    /// Number of blocks available for data with these rights, including freed blocks that await a commit.
    pub(crate) fn available_for_data(&self, rights: ReservedAccess) -> u64 {
        let left = || {
            let waiting = self.pending_frees.load(Ordering::Relaxed).max(0);
            self.available_for(Purpose::Data, rights).saturating_add(waiting)
        };
        let (before, released) = (left(), || self.release_windows());
        let left = if before <= 0 && released() { left() } else { before };
        left.max(0) as u64
    }

    /// Checks that the metadata blocks that a handle may need in the middle of an operation are available with these rights.
    ///
    /// # Errors
    /// [`Error::NoSpace`], under the same conditions as for [`reserve`](Self::reserve).
    pub(crate) fn check(&self, blocks: u32, rights: ReservedAccess) -> Result<()> {
        let has_room = || blocks == 0 || self.available_for(Purpose::Metadata, rights) >= blocks.into();
        match has_room() || self.release_windows() && has_room() {
            true => Ok(()),
            false => Err(Error::NoSpace),
        }
    }

    fn reserve_in(
        &self,
        group: &State,
        locked: &mut Locked,
        from: u32,
        (want, least): (u32, u32),
        purpose: Purpose,
    ) -> Option<(u32, u32)> {
        let busy = locked.busy.as_mut()?;
        // Continuing right behind the previous extent is preferred to a longer run at another position.
        let (at, count) = match busy.free_at(from, want) {
            0 => {
                let aligned = if purpose == Purpose::Growth {
                    busy.find_aligned(from, GROWTH_RUN_BLOCKS, want)
                } else {
                    None
                };
                let found = || busy.find(from, want).filter(|(_, count)| *count >= least);
                let whole = || {
                    let found = busy.find(0, want);
                    let longest = found.map_or(0, |(_, count)| count);
                    if longest < want {
                        group.longest.store(longest, Ordering::Relaxed);
                    }
                    found
                };
                aligned.or_else(found).or_else(whole)?
            }
            count => (from, count),
        };
        if count < least && at != from {
            return None;
        }
        busy.set(at, count, true);
        locked.reserved += count;
        group.blocks.fetch_sub(count, Ordering::Relaxed);
        self.available.fetch_sub(count.into(), Ordering::Relaxed);
        Some((at, count))
    }

    /// Makes freed blocks available whose commit has completed; reports whether some still await a commit.
    pub(crate) fn sweep(&self, store: &MetadataCache) -> Result<bool> {
        if self.pending_frees.load(Ordering::Relaxed) == 0 {
            return Ok(false);
        }
        for (number, group) in (0..).zip(&self.groups) {
            let waits = !group.locked.lock().pending_frees.is_empty();
            if waits {
                drop(self.lock(store, number)?);
            }
        }
        Ok(self.pending_frees.load(Ordering::Relaxed) > 0)
    }

    /// Reports whether freed blocks await a commit.
    pub(crate) fn has_pending_frees(&self) -> bool {
        self.pending_frees.load(Ordering::Relaxed) > 0
    }

    /// Reserves and takes one block for metadata.
    pub(crate) fn take_one(&self, handle: &mut Handle<'_>, goal: u64, rights: ReservedAccess) -> Result<u64> {
        let mut reservation = self.reserve(handle.store(), goal, 1, (Purpose::Metadata, rights))?;
        let start = reservation.start;
        reservation.take(handle, 1)?;
        Ok(start)
    }

    /// Frees blocks. They become available once the transaction is committed.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a block is not in use, or belongs to group metadata or the journal.
    pub(crate) fn free(&self, handle: &mut Handle<'_>, start: u64, count: u32) -> Result<()> {
        let store = handle.store();
        let geometry = store.geometry();
        store.check_file_blocks(start, count.into())?;
        let (mut start, mut left) = (start, count);
        while left > 0 {
            let offset = start - u64::from(geometry.first_data_block);
            let number = (offset / u64::from(geometry.blocks_per_group)) as u32;
            let at = (offset % u64::from(geometry.blocks_per_group)) as u32;
            let part = left.min(geometry.blocks_per_group - at);
            let mut locked = self.lock(store, number)?;
            let tid = handle.tid();
            bitmap::change(handle, number, Map::Blocks, (at, part), false, |raw| {
                add_blocks(raw, part.into())
            })?;
            store.add_free(handle, part.into(), 0);
            handle.freed(start, part.into());
            self.pending_frees.fetch_add(part.into(), Ordering::Relaxed);
            locked.pending_frees.push_back((tid, at, part));
            start += u64::from(part);
            left -= part;
        }
        Ok(())
    }
}

pub(super) fn add_blocks(raw: &mut crate::layout::GroupDescriptor, change: i64) -> Result<()> {
    let before = u32::from(raw.free_blocks_count_hi.get()) << 16 | u32::from(raw.free_blocks_count_lo.get());
    let Ok(after) = u32::try_from(i64::from(before) + change) else {
        return Err(Corruption::new(format!(
            "group descriptor: {before} free blocks, while {} are allocated",
            -change
        ))
        .into());
    };
    raw.free_blocks_count_lo.set(after as u16);
    raw.free_blocks_count_hi.set((after >> 16) as u16);
    Ok(())
}

impl Reservation<'_> {
    /// Marks the first `count` blocks as used in the handle's transaction. The rest stays reserved.
    pub(crate) fn take(&mut self, handle: &mut Handle<'_>, count: u32) -> Result<()> {
        let count = count.min(self.count);
        let store = handle.store();
        let mut locked = self.allocator.groups[self.group as usize].locked.lock();
        let range = (self.at, count);
        bitmap::change(handle, self.group, Map::Blocks, range, true, |raw| {
            add_blocks(raw, -i64::from(count))
        })?;
        store.add_free(handle, -i64::from(count), 0);
        locked.reserved -= count;
        self.at += count;
        self.start += u64::from(count);
        self.count -= count;
        Ok(())
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.count > 0 {
            let group = &self.allocator.groups[self.group as usize];
            let mut locked = group.locked.lock();
            locked.reserved -= self.count;
            self.allocator.release(group, &mut locked, self.at, self.count);
        }
    }
}
