//! Eviction: accounts for the cached bytes of a volume, and removes cached contents in LRU order by last open.
//!
//! An evicted file is first recorded as absent, and its backing file is unlinked once that is durable (see
//! [`Replica::reap`]). A crash between the two leaves unreferenced bytes, never a file that is recorded as cached and is not.

use crate::replica::db::reap::ReapState;
use crate::replica::db::recent_opens::MAX_RECENT_OPENS;
use crate::replica::db::recent_opens::allocated_bytes;
use std::collections::HashSet;

use rusqlite::{Connection, OpenFlags, params};
use rustix::io::Errno;

use crate::failpoint::{Failpoint, point};
use crate::id::Seq;
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::{CacheState, Inode, ROOT, number};
use crate::replica::error::Result;
use crate::replica::{Inner, Replica};

/// Files whose eviction is recorded under one lock.
const EVICTION_BATCH_FILES: usize = 64;

/// Maximum number of pinned paths returned.
const MAX_PINNED_PATHS: usize = 32;

/// Statistics of the cached contents of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Bytes of cached files, in whole blocks and including holes.
    pub bytes: u64,
    /// Bytes of pinned files.
    pub pinned: u64,
    /// Bytes of files whose current version may not be in the store.
    pub changed: u64,
}

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

    pub(crate) fn load_pins(&mut self) -> rusqlite::Result<()> {
        let mut query = self.db.prepare_cached("SELECT num FROM object WHERE pinned = 1")?;
        self.pins = query.query_map([], |row| row.get(0).map(number))?.collect::<rusqlite::Result<_>>()?;
        Ok(())
    }

    /// Reports whether an object or one of its ancestors is pinned.
    pub(crate) fn is_pinned(&mut self, num: u64) -> Result<bool> {
        if self.pins.is_empty() {
            return Ok(false);
        }
        let (mut ahead, mut seen) = (vec![num], HashSet::new());
        while let Some(num) = ahead.pop() {
            if self.pins.contains(&num) {
                return Ok(true);
            }
            if num == ROOT || !seen.insert(num) {
                continue;
            }
            let mut query = self.db.prepare_cached("SELECT parent FROM link WHERE child = ?1")?;
            let above = query.query_map([num as i64], |row| row.get(0).map(number))?;
            ahead.extend(above.collect::<rusqlite::Result<Vec<u64>>>()?);
        }
        Ok(false)
    }

    /// Reports whether a file can be fetched again and is not in use.
    fn is_evictable(&mut self, node: &Inode) -> Result<bool> {
        Ok(!self.rollback_detected
            && node.is_regular()
            && node.state != CacheState::Absent
            && node.size > 0
            && node.created_seq != Seq(0)
            && node.dirty.is_empty()
            && !node.maybe_dirty
            && !self.opens.contains_key(&node.ino)
            && !self.unlinked_open.contains(&node.ino)
            && !self.is_pinned(node.ino)?)
    }

    /// Records a file as absent. Returns the bytes it occupied, or `None` if it is not evictable.
    pub(crate) fn evict_file(&mut self, num: u64) -> Result<Option<u64>> {
        let Some(mut node) = self.find(num)? else { return Ok(None) };
        if !self.is_evictable(&node)? {
            return Ok(None);
        }
        let before = self.cached_bytes;
        self.begin()?;
        self.forget_present(num)?;
        self.schedule_unlink(num)?;
        self.finish_refetch(num)?;
        self.db.prepare_cached("DELETE FROM recent WHERE num = ?1")?.execute([num as i64])?;
        node.state = CacheState::Absent;
        self.save(node);
        Ok(Some(before.saturating_sub(self.cached_bytes)))
    }

    /// Schedules the backing file of an object, which nothing references any more, to be unlinked once that is durable.
    pub(crate) fn schedule_unlink(&mut self, num: u64) -> Result<()> {
        self.begin()?;
        self.last_created.take_if(|(latest, _)| *latest == num);
        self.db.prepare_cached("INSERT OR IGNORE INTO doomed VALUES (?1)")?.execute([num as i64])?;
        self.has_pending_unlinks = true;
        Ok(())
    }

    /// Reports whether the backing file of an object is scheduled for removal, so that an open must not use it.
    pub(crate) fn is_being_reaped(&mut self, num: u64) -> Result<bool> {
        Ok(self.find(num)?.is_some_and(|node| node.state == CacheState::Absent)
            && !self.opens.contains_key(&num)
            && self.db.prepare_cached("SELECT 1 FROM doomed WHERE num = ?1")?.exists([num as i64])?)
    }

    /// Returns the state of an object whose backing file is scheduled for removal.
    pub(crate) fn reap_state(&mut self, num: u64) -> Result<ReapState> {
        Ok(match self.find(num)? {
            None => ReapState::Unknown,
            Some(node) if node.state != CacheState::Absent => ReapState::Cached,
            Some(_) if self.opens.contains_key(&num) => ReapState::Open,
            Some(_) => ReapState::Absent,
        })
    }
}

impl Inner {
    /// Removes the scheduled backing file before new contents are written in its place. Existing readers keep the old file;
    /// after a crash the database knows which of the two is there.
    pub(crate) fn finish_reaping(&self, num: u64) -> Result<(), Errno> {
        if !self.read(|core| core.is_being_reaped(num))? {
            return Ok(());
        }
        self.sync()?;
        self.change(|core, shared| {
            if core.is_being_reaped(num)? {
                shared.files.remove(num)?;
                core.begin()?;
                core.db.prepare_cached("DELETE FROM doomed WHERE num = ?1")?.execute([num as i64])?;
            }
            Ok(())
        })
    }
}

impl Replica {
    /// Returns the bytes of cached files, in whole blocks.
    pub fn cached_bytes(&self) -> u64 {
        self.inner.core.lock().cached_bytes
    }

    /// Starts recording the order of opens.
    pub fn enable_recent_opens(&self) {
        self.inner.core.lock().recent_opens.enabled = true;
    }

    /// Evicts files, least recently opened first, until `bytes` are freed. Never evicts a file that is open, pinned, or
    /// changed since the store's version. Returns the bytes freed.
    ///
    /// # Errors
    /// EIO, ENOSPC.
    pub fn evict(&self, bytes: u64) -> Result<u64, Errno> {
        self.change(|core, _| core.write_recent())?;
        self.commit()?;
        let mut freed = 0;
        for nums in self.eviction_candidates(bytes)?.chunks(EVICTION_BATCH_FILES) {
            let mut left = Vec::new();
            freed = self.change(|core, _| {
                let mut freed = freed;
                for &num in nums {
                    if freed < bytes
                        && let Some(bytes) = core.evict_file(num)?
                    {
                        freed += bytes;
                        left.push(num);
                    }
                }
                point(Failpoint::EvictNoted)?;
                Ok(freed)
            })?;
            // They take no blocks any more.
            if let Some(caches) = self.inner.shared.kernel_cache.get() {
                left.into_iter().for_each(|num| caches.object_changed(num));
            }
        }
        if freed > 0 {
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
    fn open_read_connection(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(self.directory().join("replica.db"), flags)?;
        db.busy_timeout(std::time::Duration::from_secs(10))?;
        Ok(db)
    }

    /// Returns the cached bytes and how many of them are not evictable. Reads all pinned objects on a separate connection.
    ///
    /// # Errors
    /// EIO.
    pub fn cache_stats(&self) -> Result<CacheStats, Errno> {
        let bytes = self.cached_bytes();
        let read = || -> rusqlite::Result<CacheStats> {
            let db = self.open_read_connection()?;
            let sum = |query: &str| db.query_row(query, [], |row| row.get(0).map(number));
            // A partial file counts with its full size.
            const SUM_OF_BYTES: &str = "SELECT coalesce(sum((size + 4095) / 4096 * 4096), 0) FROM";
            let changed = sum(&format!(
                "{SUM_OF_BYTES} base_object JOIN object USING (num) WHERE kind = 0 AND state > 0"
            ))?;
            let pinned = sum(&format!(
                "{PINNED_SUBTREES} {SUM_OF_BYTES} below JOIN object USING (num) WHERE kind = 0 AND state > 0"
            ))?;
            Ok(CacheStats { bytes, pinned, changed })
        };
        read().map_err(|error| crate::replica::OpError::from(error).errno)
    }

    /// Returns files that are not completely cached: all, or only pinned ones and those that the store does not have, whose
    /// chunks it need not keep. In the order of their numbers after `after`, at most `most`.
    ///
    /// # Errors
    /// EIO.
    pub fn missing_files(&self, all: bool, after: u64, most: u32) -> Result<Vec<u64>, Errno> {
        const MISSING_FILES_QUERY: &str =
            "SELECT num FROM object WHERE kind = 0 AND state < 2 AND nlink > 0 AND num > ?1";
        let rows = |db: &Connection, query: &str| -> rusqlite::Result<Vec<u64>> {
            let mut query = db.prepare_cached(query)?;
            query.query_map(params![after as i64, most], |row| row.get(0).map(number))?.collect()
        };
        let pins = !self.inner.core.lock().pins.is_empty();
        if !all && !pins {
            // The files are few, found by an index, and queried after each change: not worth a connection.
            let query = format!("{MISSING_FILES_QUERY} AND made = 0 ORDER BY num LIMIT ?2");
            return self.inner.read_in_background(|core| Ok(rows(&core.db, &query)?));
        }
        let read = || -> rusqlite::Result<Vec<u64>> {
            let query = match all {
                true => format!("{MISSING_FILES_QUERY} ORDER BY num LIMIT ?2"),
                false => format!(
                    "{PINNED_SUBTREES} {MISSING_FILES_QUERY} AND (made = 0 OR num IN (SELECT num FROM below)) ORDER BY num LIMIT ?2"
                ),
            };
            rows(&self.open_read_connection()?, &query)
        };
        read().map_err(|error| crate::replica::OpError::from(error).errno)
    }

    /// Pins or unpins an object: a pinned one is fetched and never evicted. For a directory this includes all present and
    /// future descendants.
    ///
    /// # Errors
    /// ESTALE, EIO.
    pub fn pin(&self, num: u64, pinned: bool) -> Result<(), Errno> {
        self.change(|core, _| {
            let mut node = core.node(num)?;
            core.begin()?;
            node.pinned = pinned;
            core.save(node);
            if pinned {
                core.pins.insert(num)
            } else {
                core.pins.remove(&num)
            };
            Ok(())
        })?;
        self.sync()?;
        self.inner.shared.cache_changed.notify();
        Ok(())
    }

    /// Reports whether an object or one of its ancestors is pinned.
    ///
    /// # Errors
    /// EIO.
    pub fn is_pinned(&self, num: u64) -> Result<bool, Errno> {
        self.read(|core| core.is_pinned(num))
    }

    /// Returns the paths of explicitly pinned objects, at most 32.
    ///
    /// # Errors
    /// EIO.
    pub fn pinned_paths(&self) -> Result<Vec<Vec<u8>>, Errno> {
        self.read(|core| {
            let mut nums: Vec<u64> = core.pins.iter().copied().collect();
            nums.sort_unstable();
            nums.iter().take(MAX_PINNED_PATHS).map(|num| core.path(*num)).collect()
        })
    }

    /// Waits until the cached contents may have changed. Returns `false` on timeout.
    pub fn wait_for_cache_change(&self, at_most: std::time::Duration) -> bool {
        self.inner.shared.cache_changed.wait(at_most)
    }

    /// Wakes [`wait_for_cache_change`](Self::wait_for_cache_change).
    pub fn notify_cache_change(&self) {
        self.inner.shared.cache_changed.notify();
    }
}

/// Pinned objects and all their descendants.
const PINNED_SUBTREES: &str = "WITH RECURSIVE below (num) AS (SELECT num FROM object WHERE pinned = 1
    UNION SELECT child FROM link JOIN below ON link.parent = below.num)";

/// Wakes one waiting thread; a notification without a waiter is kept for the next wait.
#[derive(Default)]
pub(crate) struct Notify(parking_lot::Mutex<bool>, parking_lot::Condvar);

impl Notify {
    pub(crate) fn notify(&self) {
        let mut rung = self.0.lock();
        if !*rung {
            *rung = true;
            self.1.notify_one();
        }
    }

    fn wait(&self, at_most: std::time::Duration) -> bool {
        let mut rung = self.0.lock();
        if !*rung {
            self.1.wait_for(&mut rung, at_most);
        }
        std::mem::take(&mut rung)
    }
}
