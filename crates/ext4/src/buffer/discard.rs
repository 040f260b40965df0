//! Discard (TRIM) of freed ranges, after the commit that frees them.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::MetadataCache;

/// Ranges freed by the running transaction, recorded if discard is enabled.
#[derive(Default)]
pub(super) struct Freed {
    enabled: AtomicBool,
    /// First block and block count.
    ranges: Mutex<Vec<(u64, u64)>>,
}

impl Freed {
    pub(super) fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    pub(super) fn add(&self, start: u64, count: u64) {
        if !self.enabled.load(Ordering::Relaxed) {
            return;
        }
        let mut ranges = self.ranges.lock();
        match ranges.last_mut() {
            Some(last) if last.0 + last.1 == start => last.1 += count,
            _ => ranges.push((start, count)),
        }
    }

    pub(super) fn take(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut *self.ranges.lock())
    }
}

impl MetadataCache {
    /// Discards freed blocks, after the commit that frees them and before they can be allocated. If the device fails, discard is
    /// disabled; nothing else depends on it.
    pub(super) fn discard(&self, freed: &Freed, mut ranges: Vec<(u64, u64)>) {
        ranges.sort_unstable();
        ranges.dedup_by(|next, last| {
            let follows = last.0 + last.1 == next.0;
            if follows {
                last.1 += next.1;
            }
            follows
        });
        let bits = self.geometry.block_bits;
        for (start, count) in ranges {
            if let Err(error) = self.device.discard(start << bits, count << bits) {
                tracing::warn!(
                    "cannot discard freed blocks: {error}; no more are discarded until the next mount"
                );
                freed.set_enabled(false);
                return;
            }
        }
    }
}
