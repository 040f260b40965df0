//! Tracks which groups have their free-block bitmap, including in-memory reservations, cached. The oldest are evicted when the
//! cache exceeds its size limit.

use std::collections::VecDeque;

/// Limit on the cached bitmaps of all groups. A file system of 1 TiB has 32 MiB of bitmaps.
const MAX_CACHED_BITMAP_BYTES: u32 = 4 << 20;

/// Queue of group numbers, the oldest first.
pub(super) struct BitmapCache {
    groups: VecDeque<u32>,
    max_bitmaps: usize,
}

impl BitmapCache {
    pub(super) fn new(blocks_per_group: u32) -> Self {
        Self {
            groups: VecDeque::new(),
            max_bitmaps: (MAX_CACHED_BITMAP_BYTES / (blocks_per_group / 8).max(1)).max(8) as usize,
        }
    }

    pub(super) fn push(&mut self, group: u32) {
        self.groups.push_back(group);
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        self.groups.pop_front()
    }

    /// Number of groups above the limit.
    pub(super) fn surplus(&self) -> usize {
        self.groups.len().saturating_sub(self.max_bitmaps)
    }

    #[cfg(test)]
    pub(super) fn limit(&mut self, max_bitmaps: usize) {
        self.max_bitmaps = max_bitmaps;
    }
}
