//! Generations of directories that are restored after their removal.
//!
//! Once a directory is removed, the kernel treats its inode as dead (S_DEAD): listings and lookups return nothing until the
//! inode is forgotten, which needs everything below to be closed. Where synchronisation restores such a directory under its
//! old inode number, a new generation makes the kernel treat it as another directory.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::marks::{Mark, Marks};

/// Number of removals of each directory that the kernel has not forgotten.
pub(crate) struct RemovedDirGenerations {
    removed: Mutex<HashMap<u64, u64>>,
    /// The next daemon needs the numbers, too.
    marks: Arc<Marks>,
}

impl RemovedDirGenerations {
    pub(crate) fn new(marks: Arc<Marks>) -> Self {
        Self { removed: Mutex::default(), marks }
    }

    /// Records that the reply to a removal is about to be sent.
    pub(crate) fn record_removal(&self, num: u64) {
        let mut removed = self.removed.lock();
        let times = removed.entry(num).or_default();
        self.marks.remove(Mark::Removed { num, times: *times });
        *times += 1;
        self.marks.add(Mark::Removed { num, times: *times });
    }

    /// Restores the number of removals that an earlier daemon recorded.
    pub(crate) fn restore(&self, num: u64, times: u64) {
        self.removed.lock().insert(num, times);
    }

    pub(crate) fn generation(&self, num: u64) -> u64 {
        self.removed.lock().get(&num).copied().unwrap_or_default()
    }

    /// Drops the generation of a directory if the kernel holds no reference (`is_forgotten`).
    pub(crate) fn forget(&self, num: u64, is_forgotten: impl FnOnce() -> bool) {
        let mut removed = self.removed.lock();
        if let Some(times) = removed.get(&num).copied().filter(|_| is_forgotten()) {
            removed.remove(&num);
            self.marks.remove(Mark::Removed { num, times });
        }
    }
}
