//! Blocks kept for files that grow, so that files which grow in turns stay in long runs.
//!
//! They are reserved in memory alone: a crash leaves nothing of them, and who finds no space elsewhere gets them.

use parking_lot::Mutex;

use super::{Allocator, For, Reservation, Rights};
use crate::error::Result;
use crate::store::Store;

const SHARDS: usize = 16;

/// Files of one shard that can have a window; the one that had it longest gives its own to the next.
const MOST: usize = 32;

/// Blocks ahead of a file that begins to grow, and of a large one.
const LEAST_AHEAD: u64 = 16;
const MOST_AHEAD: u64 = 2048;

/// Blocks are kept ahead while there are so many times as many.
const PLENTY: i64 = 16;

/// Consecutive reserved blocks of a group.
struct Window {
    group: u32,
    /// Within the group.
    at: u32,
    /// The first, on the device.
    start: u64,
    count: u32,
}

/// The windows, by inode, the oldest first.
#[derive(Default)]
pub(super) struct Windows([Mutex<Vec<(u32, Window)>>; SHARDS]);

/// A file that gets blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growing {
    pub(crate) inode: u32,
    /// Blocks that it has up to where it gets more; as many are kept ahead of it, within limits.
    pub(crate) blocks: u64,
}

impl Windows {
    fn shard(&self, inode: u32) -> &Mutex<Vec<(u32, Window)>> {
        &self.0[inode as usize % SHARDS]
    }

    fn take(&self, inode: u32) -> Option<Window> {
        let mut shard = self.shard(inode).lock();
        let place = shard.iter().position(|(number, _)| *number == inode)?;
        Some(shard.remove(place).1)
    }

    /// Keeps a window; tells another that has to go for it.
    fn put(&self, inode: u32, window: Window) -> Option<Window> {
        let mut shard = self.shard(inode).lock();
        shard.push((inode, window));
        (shard.len() > MOST).then(|| shard.remove(0).1)
    }
}

impl Allocator {
    /// As [`reserve`](Self::reserve) of `want` blocks at `goal`, where the file goes on: out of its window, or with a new
    /// one behind them.
    pub(crate) fn reserve_growth(
        &self,
        store: &Store,
        file: Growing,
        (goal, want): (u64, u32),
        rights: Rights,
    ) -> Result<Reservation<'_>> {
        let mut all = match self.windows.take(file.inode) {
            Some(window) if window.start == goal => self.reservation(window),
            other => {
                other.map(|window| self.reservation(window));
                let ahead = file.blocks.next_power_of_two().clamp(LEAST_AHEAD, MOST_AHEAD) as u32;
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

    fn reservation(&self, Window { group, at, start, count }: Window) -> Reservation<'_> {
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

    fn into_window(mut self) -> Window {
        let Self { group, at, start, count, .. } = self;
        // Nothing is given back.
        self.count = 0;
        Window { group, at, start, count }
    }
}
