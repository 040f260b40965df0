//! Files whose cached content was superseded by the store, to be downloaded again.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::Connection;

use super::basis_cache::{BasisCache, BasisFile};
use super::inode::number;

/// Most objects have no cached data, so that they need no lookup in the database.
pub(crate) struct RefetchQueue {
    /// The inode numbers, as in the database.
    pub(crate) nums: BTreeSet<u64>,
    /// The old versions of some of them.
    pub(crate) basis_cache: BasisCache,
}

impl RefetchQueue {
    pub(crate) fn load(db: &Connection) -> rusqlite::Result<Self> {
        // An older version of this program may have fetched or removed some without deleting their rows.
        let mut query = db.prepare(
            "SELECT num FROM replaced JOIN object USING (num) WHERE kind = 0 AND state < 2 AND nlink > 0",
        )?;
        let nums = query.query_map([], |row| row.get(0).map(number))?;
        Ok(Self { nums: nums.collect::<rusqlite::Result<_>>()?, basis_cache: BasisCache::default() })
    }

    pub(crate) fn contains(&self, num: u64) -> bool {
        self.nums.contains(&num)
    }

    /// Returns the old version of a file, if it is still kept.
    pub(crate) fn basis(&self, num: u64) -> Option<Arc<BasisFile>> {
        self.basis_cache.get(num)
    }
}
