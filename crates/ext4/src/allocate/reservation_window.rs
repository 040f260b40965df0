//! Reservation windows: blocks reserved ahead of growing files, so that files that grow alternately stay in long extents.
//!
//! Windows exist only in memory: a crash leaves no trace of them, and an allocation that finds no space elsewhere releases them.

use parking_lot::Mutex;
use shunt_sharded::Sharded;

use super::{Allocator, Purpose, Reservation, ReservedAccess};
use crate::buffer::MetadataCache;
use crate::error::Result;

/// Number of files per shard that can have a window; beyond it, the oldest window is released.
const MAX_WINDOWS_PER_SHARD: usize = 32;

/// Window size, in blocks, of a small file and of a large one.
const MIN_WINDOW_BLOCKS: u64 = 16;
const MAX_WINDOW_BLOCKS: u64 = 2048;

/// A window is reserved only while at least this many times the blocks of the allocation and its window are available.
const MIN_FREE_RATIO: i64 = 16;

/// A run of reserved blocks within a group.
struct ReservationWindow {
    group: u32,
    /// Offset within the group.
    at: u32,
    /// First block, numbered from the start of the device.
    start: u64,
    count: u32,
}

/// Windows by inode number, the oldest first.
#[derive(Default)]
pub(super) struct ReservationWindows(Sharded<Mutex<Vec<(u32, ReservationWindow)>>>);

/// A file to which blocks are being added.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growing {
    pub(crate) inode: u32,
    /// Blocks of the file before the point of growth. The window has this size, within limits.
    pub(crate) blocks: u64,
}

impl ReservationWindows {
    fn shard(&self, inode: u32) -> &Mutex<Vec<(u32, ReservationWindow)>> {
        self.0.by_low_bits(inode.into())
    }

    fn take(&self, inode: u32) -> Option<ReservationWindow> {
        let mut shard = self.shard(inode).lock();
        let index = shard.iter().position(|(number, _)| *number == inode)?;
        Some(shard.remove(index).1)
    }

    /// Adds a window; returns the window that it evicts, if any.
    fn put(&self, inode: u32, window: ReservationWindow) -> Option<ReservationWindow> {
        let mut shard = self.shard(inode).lock();
        shard.push((inode, window));
        (shard.len() > MAX_WINDOWS_PER_SHARD).then(|| shard.remove(0).1)
    }
}

impl Allocator {
    /// Reserves up to `want` blocks at `goal`, the end of the file, from the file's window or from a new reservation, whose rest
    /// becomes the window. Otherwise like [`reserve`](Self::reserve).
    pub(crate) fn reserve_growth(
        &self,
        store: &MetadataCache,
        file: Growing,
        (goal, want): (u64, u32),
        rights: ReservedAccess,
    ) -> Result<Reservation<'_>> {
        let mut all = match self.windows.take(file.inode) {
            Some(window) if window.start == goal => self.reservation(window),
            other => {
                other.map(|window| self.reservation(window));
                let ahead =
                    file.blocks.next_power_of_two().clamp(MIN_WINDOW_BLOCKS, MAX_WINDOW_BLOCKS) as u32;
                let total = want.saturating_add(ahead);
                let whole = if self.has_plenty(total) { total } else { want };
                self.reserve(store, goal, whole, (Purpose::Growth, rights))?
            }
        };
        if let Some(rest) = all.split_off(want) {
            let evicted = self.windows.put(file.inode, rest.into_window());
            evicted.map(|window| self.reservation(window));
        }
        Ok(all)
    }

    /// Reports whether at least `MIN_FREE_RATIO` times this number of blocks is available.
    pub(crate) fn has_plenty(&self, blocks: u32) -> bool {
        let reserve = i64::from(self.metadata_reserve).saturating_add_unsigned(self.reserved);
        self.available().saturating_sub(reserve) / MIN_FREE_RATIO >= blocks.into()
    }

    /// Releases the window of a file.
    pub(crate) fn release_window(&self, inode: u32) {
        self.windows.take(inode).map(|window| self.reservation(window));
    }

    /// Releases the windows of all files; reports whether there were any.
    pub(super) fn release_windows(&self) -> bool {
        let mut any = false;
        for shard in self.windows.0.iter() {
            for (_, window) in std::mem::take(&mut *shard.lock()) {
                any = true;
                drop(self.reservation(window));
            }
        }
        any
    }

    fn reservation(
        &self,
        ReservationWindow { group, at, start, count }: ReservationWindow,
    ) -> Reservation<'_> {
        Reservation { allocator: self, group, at, start, count }
    }
}

impl Reservation<'_> {
    /// Splits off the blocks behind the first `count`; `None` if there are none.
    fn split_off(&mut self, count: u32) -> Option<Self> {
        let rest = self.count.checked_sub(count).filter(|&rest| rest > 0)?;
        self.count = count;
        Some(Reservation { at: self.at + count, start: self.start + u64::from(count), count: rest, ..*self })
    }

    fn into_window(mut self) -> ReservationWindow {
        let Self { group, at, start, count, .. } = self;
        // Keep `drop` from releasing the blocks.
        self.count = 0;
        ReservationWindow { group, at, start, count }
    }
}
