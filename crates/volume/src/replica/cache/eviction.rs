//! Eviction: accounts for the cached bytes of a volume, and removes cached contents in LRU order by last open.
//!
//! An evicted file is first recorded as absent, and its backing file is unlinked once that is durable (see
//! [`Replica::reap`]). A crash between the two leaves unreferenced bytes, never a file that is recorded as cached and is not.

use std::sync::atomic::Ordering;

use rusqlite::{Connection, OpenFlags, params};
use rustix::io::Errno;

use crate::failpoint::{Failpoint, point};
use crate::id::Seq;
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::{CacheState, Inode, number};
use crate::replica::db::recent_opens::MAX_RECENT_OPENS;
use crate::replica::db::recent_opens::allocated_bytes;
use crate::replica::error::Result;
use crate::replica::{Inner, Replica};

/// Files whose eviction is recorded under one lock.
const EVICTION_BATCH_FILES: usize = 64;

impl ReplicaDb {
    /// Records an open of a file.
    pub(crate) fn record_open(&mut self, num: u64) -> Result<()> {
        if !self.recent_opens.enabled {
            return Ok(());
        }
        self.recent_opens.opened.insert(num, self.recent_opens.next);
        self.recent_opens.next += 1;
        if self.recent_opens.opened.len() >= MAX_RECENT_OPENS { self.write_recent() } else { Ok(()) }
    }

    fn write_recent(&mut self) -> Result<()> {
        if self.recent_opens.opened.is_empty() {
            return Ok(());
        }
        self.begin()?;
        self.recent_opens.has_rows = true;
        let mut insert = self.db.prepare_cached("INSERT OR REPLACE INTO recent VALUES (?1, ?2)")?;
        for (num, at) in self.recent_opens.opened.drain() {
            insert.execute(params![num as i64, at as i64])?;
        }
        Ok(())
    }

    /// Reports whether a file can be fetched again and is not in use.
    fn is_evictable(&mut self, inode: &Inode) -> Result<bool> {
        Ok(!self.rollback_detected
            && !self.adopts_opens
            && inode.is_regular()
            && inode.state != CacheState::Absent
            && inode.size > 0
            && inode.created_seq != Seq(0)
            && inode.dirty.is_empty()
            && !inode.maybe_dirty
            && !self.opens.contains_key(&inode.ino)
            && !self.unlinked_open.contains(&inode.ino)
            && !self.is_pinned(inode.ino)?)
    }

    /// Records a file as absent. Returns the bytes it occupied, or `None` if it is not evictable.
    pub(crate) fn evict_file(&mut self, num: u64) -> Result<Option<u64>> {
        let Some(mut inode) = self.find(num)? else { return Ok(None) };
        if !self.is_evictable(&inode)? {
            return Ok(None);
        }
        let before = self.cached_bytes;
        self.begin()?;
        self.clear_present(num)?;
        self.schedule_unlink(num)?;
        self.finish_refetch(num)?;
        self.db.prepare_cached("DELETE FROM recent WHERE num = ?1")?.execute([num as i64])?;
        inode.state = CacheState::Absent;
        self.save(inode);
        Ok(Some(before.saturating_sub(self.cached_bytes)))
    }
}

impl Inner {
    /// Removes the scheduled backing file before new contents are written in its place. Existing readers keep the old file;
    /// after a crash the database knows which of the two is there.
    pub(crate) fn finish_reaping(&self, num: u64) -> Result<(), Errno> {
        if !self.read(|db| db.is_being_reaped(num))? {
            return Ok(());
        }
        self.sync()?;
        self.change(|db, shared| {
            if db.is_being_reaped(num)? {
                shared.files.remove(num)?;
                db.begin()?;
                db.db.prepare_cached("DELETE FROM doomed WHERE num = ?1")?.execute([num as i64])?;
            }
            Ok(())
        })
    }
}

impl Replica {
    /// Returns the bytes of cached files, in whole blocks.
    pub fn cached_bytes(&self) -> u64 {
        self.inner.db.lock().cached_bytes
    }

    /// Starts recording the order of opens.
    pub(crate) fn enable_recent_opens(&self) {
        self.inner.db.lock().recent_opens.enabled = true;
    }

    /// Evicts files, least recently opened first, until `bytes` are freed. Never evicts a file that is open, pinned, or
    /// changed since the store's version. Returns the bytes freed.
    ///
    /// # Errors
    /// EIO, ENOSPC.
    pub fn evict(&self, bytes: u64) -> Result<u64, Errno> {
        self.change(|db, _| db.write_recent())?;
        self.commit()?;
        let mut freed = 0;
        for nums in self.eviction_candidates(bytes)?.chunks(EVICTION_BATCH_FILES) {
            let mut left = Vec::new();
            freed = self.change(|db, _| {
                let mut freed = freed;
                for &num in nums {
                    if freed < bytes
                        && let Some(bytes) = db.evict_file(num)?
                    {
                        freed += bytes;
                        left.push(num);
                    }
                }
                point(Failpoint::EvictRecorded)?;
                Ok(freed)
            })?;
            let counters = &self.inner.shared.cache_counters;
            counters.evicted_files.fetch_add(left.len() as u64, Ordering::Relaxed);
            // The evicted files occupy no blocks, so their attributes are invalidated.
            if let Some(caches) = self.inner.shared.kernel_cache.get() {
                left.into_iter().for_each(|num| caches.object_changed(num));
            }
        }
        if freed > 0 {
            self.inner.shared.cache_counters.evicted_bytes.fetch_add(freed, Ordering::Relaxed);
            while self.reap(4096)? > 0 {}
        }
        Ok(freed)
    }

    /// Returns files that are evictable according to the database, with a sum of about twice `bytes`. Uses a separate
    /// connection, so the replica is not locked.
    fn eviction_candidates(&self, bytes: u64) -> Result<Vec<u64>, Errno> {
        let read = || -> rusqlite::Result<Vec<u64>> {
            let db = self.open_read_connection()?;
            let mut query = db.prepare(
                "SELECT o.num, o.size FROM object o LEFT JOIN recent r ON r.num = o.num
                 WHERE o.kind = 0 AND o.state > 0 AND o.size > 0 AND o.made > 0 AND o.dirty = 0 AND o.maybe_dirty = 0
                     AND o.nlink > 0 AND o.pinned = 0
                 ORDER BY coalesce(r.at, 0), o.num",
            )?;
            let mut rows = query.query([])?;
            let (mut nums, mut sum) = (Vec::new(), 0u64);
            // Reads more than needed, because some candidates turn out not to be evictable.
            while let Some(row) = rows.next()?
                && sum < bytes.saturating_mul(2)
            {
                nums.push(number(row.get(0)?));
                sum = sum.saturating_add(allocated_bytes(number(row.get(1)?)));
            }
            Ok(nums)
        };
        read().map_err(|error| crate::replica::OpError::from(error).errno)
    }

    /// Opens a read-only connection, which sees the last commit.
    pub(super) fn open_read_connection(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(self.directory().join("replica.db"), flags)?;
        db.busy_timeout(std::time::Duration::from_secs(10))?;
        Ok(db)
    }

    /// Waits until the cached contents may have changed. Returns `false` on timeout.
    pub(crate) fn wait_for_cache_change(&self, at_most: std::time::Duration) -> bool {
        self.inner.shared.cache_changed.wait(at_most)
    }

    /// Wakes [`wait_for_cache_change`](Self::wait_for_cache_change).
    pub(crate) fn notify_cache_change(&self) {
        self.inner.shared.cache_changed.notify();
    }
}

/// Wakes one waiting thread; a notification without a waiter is kept for the next wait.
#[derive(Default)]
pub(crate) struct Notify(parking_lot::Mutex<bool>, parking_lot::Condvar);

impl Notify {
    pub(crate) fn notify(&self) {
        let mut is_notified = self.0.lock();
        if !*is_notified {
            *is_notified = true;
            self.1.notify_one();
        }
    }

    fn wait(&self, at_most: std::time::Duration) -> bool {
        let mut is_notified = self.0.lock();
        if !*is_notified {
            self.1.wait_for(&mut is_notified, at_most);
        }
        std::mem::take(&mut is_notified)
    }
}
