//! Pinned files and directories: their content is downloaded, and never evicted.

use std::collections::HashSet;

use rustix::io::Errno;

use crate::replica::Replica;
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::{ROOT, number};
use crate::replica::error::Result;

/// Maximum number of pinned paths returned.
const MAX_PINNED_PATHS: usize = 32;

/// Pinned objects and all their descendants.
pub(super) const PINNED_SUBTREES: &str =
    "WITH RECURSIVE below (num) AS (SELECT num FROM object WHERE pinned = 1
    UNION SELECT child FROM link JOIN below ON link.parent = below.num)";

impl ReplicaDb {
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
}

impl Replica {
    /// Pins or unpins an object: a pinned one is fetched and never evicted. For a directory this includes all present and
    /// future descendants.
    ///
    /// # Errors
    /// ESTALE, EIO.
    pub fn pin(&self, num: u64, pinned: bool) -> Result<(), Errno> {
        self.change(|db, _| {
            let mut inode = db.inode(num)?;
            db.begin()?;
            inode.pinned = pinned;
            db.save(inode);
            if pinned {
                db.pins.insert(num)
            } else {
                db.pins.remove(&num)
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
        self.read(|db| db.is_pinned(num))
    }

    /// Returns the paths of explicitly pinned objects, at most 32.
    ///
    /// # Errors
    /// EIO.
    pub fn pinned_paths(&self) -> Result<Vec<Vec<u8>>, Errno> {
        self.read(|db| {
            let mut nums: Vec<u64> = db.pins.iter().copied().collect();
            nums.sort_unstable();
            nums.iter().take(MAX_PINNED_PATHS).map(|num| db.path(*num)).collect()
        })
    }
}
