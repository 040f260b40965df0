//! Generations of directories that are restored after their removal.
//!
//! Once a directory is removed, the kernel treats its inode as dead (S_DEAD): listings and lookups return nothing until the
//! inode is forgotten, which needs everything below to be closed. Where synchronisation restores such a directory under its
//! old inode number, a new generation makes the kernel treat it as another directory.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Number of removals of each directory that the kernel has not forgotten.
#[derive(Default)]
pub(crate) struct RemovedDirGenerations(Mutex<HashMap<u64, u64>>);

impl RemovedDirGenerations {
    /// Records that the reply to a removal is about to be sent.
    pub(crate) fn record_removal(&self, num: u64) {
        *self.0.lock().entry(num).or_default() += 1;
    }

    pub(crate) fn generation(&self, num: u64) -> u64 {
        self.0.lock().get(&num).copied().unwrap_or_default()
    }

    /// Drops the generation of a directory if the kernel holds no reference (`is_forgotten`).
    pub(crate) fn forget(&self, num: u64, is_forgotten: impl FnOnce() -> bool) {
        let mut removed = self.0.lock();
        if removed.contains_key(&num) && is_forgotten() {
            removed.remove(&num);
        }
    }
}
