//! Sharded table of open files or directories, by file handle. Handles are never reused.
//!
//! It is not the table of `shunt_mirror`, whose handles name a slot, because handles that survive a takeover must be small.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use shunt_fuse::{Errno, FileHandle};
use shunt_sharded::Sharded;

/// Open files, or open directories.
pub(crate) struct Handles<T> {
    next: AtomicU64,
    shards: Sharded<Mutex<HashMap<u64, Arc<T>>>, 8>,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { next: AtomicU64::new(1), shards: Sharded::default() }
    }
}

impl<T> Handles<T> {
    fn shard(&self, handle: u64) -> &Mutex<HashMap<u64, Arc<T>>> {
        self.shards.by_low_bits(handle)
    }

    pub(crate) fn add(&self, open: T) -> (FileHandle, Arc<T>) {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        let open = Arc::new(open);
        self.shard(handle).lock().insert(handle, open.clone());
        (FileHandle(handle), open)
    }

    pub(crate) fn get(&self, handle: FileHandle) -> Result<Arc<T>, Errno> {
        self.shard(handle.0).lock().get(&handle.0).cloned().ok_or(Errno::BADF)
    }

    pub(crate) fn remove(&self, handle: FileHandle) -> Option<Arc<T>> {
        self.shard(handle.0).lock().remove(&handle.0)
    }
}
