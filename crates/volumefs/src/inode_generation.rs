//! Directories that come back after they were removed.
//!
//! A kernel that removed a directory lists nothing in it, and finds nothing there, as long as it knows the inode: that is until
//! nobody has anything open below it. Where synchronisation brings such a directory back, under the number that it had, the
//! kernel is to take it for another one. It does so by the generation.

use std::collections::HashMap;

use parking_lot::Mutex;

/// How often directories were removed that the kernel has not forgotten.
#[derive(Default)]
pub(crate) struct RemovedDirGenerations(Mutex<HashMap<u64, u64>>);

impl RemovedDirGenerations {
    /// The kernel is about to hear that it removed this one.
    pub(crate) fn record_removal(&self, num: u64) {
        *self.0.lock().entry(num).or_default() += 1;
    }

    pub(crate) fn generation(&self, num: u64) -> u64 {
        self.0.lock().get(&num).copied().unwrap_or_default()
    }

    /// The kernel was told of it as often as it forgot it, if `is_forgotten`.
    pub(crate) fn forget(&self, num: u64, is_forgotten: impl FnOnce() -> bool) {
        let mut removed = self.0.lock();
        if removed.contains_key(&num) && is_forgotten() {
            removed.remove(&num);
        }
    }
}
