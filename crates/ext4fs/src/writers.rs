//! Counts the writable handles of each inode.
//!
//! Only inodes with writable handles can have dirty pages that are unknown to the engine, because the kernel writes them back
//! before it releases the last writable handle.

use hashbrown::HashMap;
use parking_lot::Mutex;

/// Writable handles of one inode.
#[derive(Debug, Default)]
struct Count {
    all: u32,
    /// Writable handles that may read as well.
    reading: u32,
}

/// Writable handles of each inode.
#[derive(Debug, Default)]
pub(crate) struct Writers(Mutex<HashMap<u32, Count>>);

impl Writers {
    pub(crate) fn opened(&self, inode: u32, reading: bool) {
        let mut writers = self.0.lock();
        let count = writers.entry(inode).or_default();
        count.all += 1;
        count.reading += u32::from(reading);
    }

    pub(crate) fn closed(&self, inode: u32, reading: bool) {
        let mut writers = self.0.lock();
        if let Some(count) = writers.get_mut(&inode) {
            count.all = count.all.saturating_sub(1);
            count.reading = count.reading.saturating_sub(u32::from(reading));
            if count.all == 0 {
                writers.remove(&inode);
            }
        }
    }

    pub(crate) fn any(&self, inode: u32) -> bool {
        self.0.lock().contains_key(&inode)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Returns the inodes that are open for writing.
    pub(crate) fn all(&self) -> Vec<u32> {
        self.0.lock().keys().copied().collect()
    }

    /// Returns the inodes that are open for writing through a handle that may read as well.
    pub(crate) fn all_reading(&self) -> Vec<u32> {
        self.0.lock().iter().filter(|(_, count)| count.reading > 0).map(|(inode, _)| *inode).collect()
    }

    /// Reports whether an inode is open for writing and none of its writable handles may read.
    pub(crate) fn all_write_only(&self, inode: u32) -> bool {
        self.0.lock().get(&inode).is_some_and(|count| count.reading == 0)
    }

    pub(crate) fn forget(&self, inode: u32) {
        self.0.lock().remove(&inode);
    }
}
