//! The queue of files that were completely cached when another version replaced them.
//!
//! They are fetched again before they are opened, since the node may be offline when they are opened. A file is dequeued when it is
//! fetched, evicted, removed or truncated on this node.

use std::ops::Bound;

use rustix::io::Errno;

use crate::replica::Replica;
use crate::replica::db::ReplicaDb;
use crate::replica::db::basis_cache::BasisFile;
use crate::replica::db::inode::CacheState;
use crate::replica::db::recent_opens::allocated_bytes;
use crate::replica::db::refetch_queue::RefetchQueue;
use crate::replica::error::Result;

impl ReplicaDb {
    /// Queues a cached file that is being replaced by another version.
    pub(crate) fn queue_refetch(&mut self, num: u64, before: Option<BasisFile>) -> Result<()> {
        self.refetch_queue.basis_cache.set(num, before);
        if self.refetch_queue.nums.insert(num) {
            self.begin()?;
            self.db.prepare_cached("INSERT OR IGNORE INTO replaced VALUES (?1)")?.execute([num as i64])?;
        }
        Ok(())
    }

    /// Removes a file from the queue.
    pub(crate) fn finish_refetch(&mut self, num: u64) -> Result<()> {
        if self.refetch_queue.nums.remove(&num) {
            self.refetch_queue.basis_cache.set(num, None);
            self.begin()?;
            self.db.prepare_cached("DELETE FROM replaced WHERE num = ?1")?.execute([num as i64])?;
        }
        Ok(())
    }

    /// Reloads the committed state.
    pub(crate) fn load_refetch_queue(&mut self) -> rusqlite::Result<()> {
        self.refetch_queue = RefetchQueue::load(&self.db)?;
        Ok(())
    }
}

impl Replica {
    /// Returns queued files in the order of their numbers after `after`, at most `max_files`, each with the number of bytes
    /// that its download adds to the cache.
    pub(crate) fn refetches(&self, after: u64, max_files: u32) -> Result<Vec<(u64, u64)>, Errno> {
        self.inner.read_in_background(|db| {
            let after = (Bound::Excluded(after), Bound::Unbounded);
            let nums: Vec<u64> =
                db.refetch_queue.nums.range(after).take(max_files as usize).copied().collect();
            let mut found = Vec::with_capacity(nums.len());
            for num in nums {
                let Some(inode) = db.find(num)?.filter(|inode| inode.links > 0) else { continue };
                let here = match inode.state {
                    CacheState::Partial => db.present(num)?.iter().map(|range| range.end - range.start).sum(),
                    _ => 0,
                };
                found.push((num, allocated_bytes(inode.size).saturating_sub(here)));
            }
            Ok(found)
        })
    }

    /// Drops old versions, the oldest first, that exceed the cache's limit or the free space of the disk.
    pub(crate) fn shrink_basis_cache(&self, limit: Option<u64>) {
        if self.inner.db.lock().refetch_queue.basis_cache.is_empty() {
            return;
        }
        let free = self.space().map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        let mut db = self.inner.db.lock();
        let limit = limit.map_or(u64::MAX, |limit| limit.saturating_sub(db.cached_bytes));
        db.refetch_queue.basis_cache.shrink(limit.min(free));
    }
}
