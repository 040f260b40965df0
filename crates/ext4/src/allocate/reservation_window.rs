//! Blocks kept for files that grow, so that files which grow in turns stay in long runs.
//!
//! They are reserved in memory alone: a crash leaves nothing of them, and who finds no space elsewhere gets them.

use parking_lot::Mutex;

use super::{Allocator, For, Reservation, ReservedAccess};
use crate::buffer::MetadataCache;
use crate::error::Result;

const SHARDS: usize = 16;

/// Files of one shard that can have a window; the one that had it longest gives its own to the next.
const MAX_WINDOWS_PER_SHARD: usize = 32;

/// Blocks ahead of a file that begins to grow, and of a large one.
const MIN_WINDOW_BLOCKS: u64 = 16;
const MAX_WINDOW_BLOCKS: u64 = 2048;

/// Blocks are kept ahead while there are so many times as many.
const PLENTY: i64 = 16;

/// Consecutive reserved blocks of a group.
struct ReservationWindow {
    group: u32,
    /// Within the group.
    at: u32,
    /// The first, on the device.
    start: u64,
    count: u32,
}

/// The windows, by inode, the oldest first.
#[derive(Default)]
pub(super) struct ReservationWindows([Mutex<Vec<(u32, ReservationWindow)>>; SHARDS]);

/// A file that gets blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growing {
    pub(crate) inode: u32,
    /// Blocks that it has up to where it gets more; as many are kept ahead of it, within limits.
    pub(crate) blocks: u64,
}

impl ReservationWindows {
    fn shard(&self, inode: u32) -> &Mutex<Vec<(u32, ReservationWindow)>> {
        &self.0[inode as usize % SHARDS]
    }

    fn take(&self, inode: u32) -> Option<ReservationWindow> {
        let mut shard = self.shard(inode).lock();
        let place = shard.iter().position(|(number, _)| *number == inode)?;
        Some(shard.remove(place).1)
    }

    /// Keeps a window; tells another that has to go for it.
    fn put(&self, inode: u32, window: ReservationWindow) -> Option<ReservationWindow> {
        let mut shard = self.shard(inode).lock();
        shard.push((inode, window));
        (shard.len() > MAX_WINDOWS_PER_SHARD).then(|| shard.remove(0).1)
    }
}

impl Allocator {
    /// As [`reserve`](Self::reserve) of `want` blocks at `goal`, where the file goes on: out of its window, or with a new
    /// one behind them.
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
                self.reserve(store, goal, whole, (For::Growth, rights))?
            }
        };
        if let Some(rest) = all.split_off(want) {
            let gone = self.windows.put(file.inode, rest.into_window());
            gone.map(|window| self.reservation(window));
        }
        Ok(all)
    }

    /// Whether there are so many, and many times as many besides.
    pub(crate) fn has_plenty(&self, blocks: u32) -> bool {
        let kept = i64::from(self.kept).saturating_add_unsigned(self.reserved);
        self.available().saturating_sub(kept) / PLENTY >= blocks.into()
    }

    /// What is kept for this file is anybody's.
    pub(crate) fn release_window(&self, inode: u32) {
        self.windows.take(inode).map(|window| self.reservation(window));
    }

    /// As [`release_window`](Self::release_window), of all files; tells whether there were any.
    pub(super) fn release_windows(&self) -> bool {
        let mut any = false;
        for shard in &self.windows.0 {
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
    /// What is behind the first `count` blocks, if that is anything.
    fn split_off(&mut self, count: u32) -> Option<Self> {
        let rest = self.count.checked_sub(count).filter(|&rest| rest > 0)?;
        self.count = count;
        Some(Reservation { at: self.at + count, start: self.start + u64::from(count), count: rest, ..*self })
    }

    fn into_window(mut self) -> ReservationWindow {
        let Self { group, at, start, count, .. } = self;
        // Nothing is given back.
        self.count = 0;
        ReservationWindow { group, at, start, count }
    }
}
