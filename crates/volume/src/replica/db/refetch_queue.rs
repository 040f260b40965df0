//! Files whose cached content was superseded by the store, to be downloaded again.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::Connection;

use super::basis_cache::{BasisCache, BasisFile};
use super::inode::number;

/// Of most objects nothing is here, and for these nothing is asked.
pub(crate) struct RefetchQueue {
    /// Their numbers, as the database has them.
    pub(crate) nums: BTreeSet<u64>,
    /// What some of them held.
    pub(crate) basis_cache: BasisCache,
}

impl RefetchQueue {
    pub(crate) fn load(db: &Connection) -> rusqlite::Result<Self> {
        // An older version may have brought or removed some, and have left them in the table.
        let mut query = db.prepare(
            "SELECT num FROM replaced JOIN object USING (num) WHERE kind = 0 AND state < 2 AND nlink > 0",
        )?;
        let nums = query.query_map([], |row| row.get(0).map(number))?;
        Ok(Self { nums: nums.collect::<rusqlite::Result<_>>()?, basis_cache: BasisCache::default() })
    }

    pub(crate) fn contains(&self, num: u64) -> bool {
        self.nums.contains(&num)
    }

    /// What a file held before, where that is known still.
    pub(crate) fn basis(&self, num: u64) -> Option<Arc<BasisFile>> {
        self.basis_cache.get(num)
    }
}
