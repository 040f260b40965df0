//! How much of a volume is cached, and which files are missing.

use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{Connection, params};
use rustix::io::Errno;

use crate::replica::Replica;
use crate::replica::cache::pin::PINNED_SUBTREES;
use crate::replica::db::inode::number;
use crate::replica::error::Result;

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

/// Activity of the cache of a volume since the mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Opens of completely cached files, and reads of cached ranges of other files.
    pub hits: u64,
    /// Reads that had to wait for a download, or failed because the store was unreachable.
    pub misses: u64,
    /// Bytes downloaded, for programs and ahead of them.
    pub fetched_bytes: u64,
    /// Files evicted.
    pub evicted_files: u64,
    /// Bytes that these files occupied.
    pub evicted_bytes: u64,
}

/// The counters behind [`CacheCounts`]. All are relaxed: a reading is not one instant.
#[derive(Debug, Default)]
pub(crate) struct CacheCounters {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) fetched_bytes: AtomicU64,
    pub(crate) evicted_files: AtomicU64,
    pub(crate) evicted_bytes: AtomicU64,
}

impl Replica {
    /// Returns what the cache did since the mount. Takes no lock.
    pub fn cache_counts(&self) -> CacheCounts {
        let counters = &self.inner.shared.cache_counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheCounts {
            hits: read(&counters.hits),
            misses: read(&counters.misses),
            fetched_bytes: read(&counters.fetched_bytes),
            evicted_files: read(&counters.evicted_files),
            evicted_bytes: read(&counters.evicted_bytes),
        }
    }

    /// Records an access of a program to contents that were cached.
    pub fn record_cache_hit(&self) {
        self.inner.shared.cache_counters.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of directories that present conflicts.
    pub fn conflict_count(&self) -> u64 {
        self.inner.db.lock().conflicts.len() as u64
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
    /// chunks it need not keep. In the order of their numbers after `after`, at most `limit`.
    ///
    /// # Errors
    /// EIO.
    pub fn missing_files(&self, all: bool, after: u64, limit: u32) -> Result<Vec<u64>, Errno> {
        const MISSING_FILES_QUERY: &str =
            "SELECT num FROM object WHERE kind = 0 AND state < 2 AND nlink > 0 AND num > ?1";
        let rows = |db: &Connection, query: &str| -> rusqlite::Result<Vec<u64>> {
            let mut query = db.prepare_cached(query)?;
            query.query_map(params![after as i64, limit], |row| row.get(0).map(number))?.collect()
        };
        let pins = !self.inner.db.lock().pins.is_empty();
        if !all && !pins {
            // The files are few, found by an index, and queried after each change: not worth a connection.
            let query = format!("{MISSING_FILES_QUERY} AND made = 0 ORDER BY num LIMIT ?2");
            return self.inner.read_in_background(|db| Ok(rows(&db.db, &query)?));
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
}
