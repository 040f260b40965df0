//! Files that were here completely when another version took their place.
//!
//! Who had them is to have them again before somebody asks, who may be off the network by then. That they are wanted ends
//! where they come, leave or are removed, or are emptied here.

use std::collections::BTreeSet;
use std::ops::Bound;

use rusqlite::Connection;
use rustix::io::Errno;

use super::Replica;
use super::core::Core;
use super::error::Done;
use super::node::{State, number};
use super::space::taken;

/// Their numbers, as the database has them: most objects never are among them, and for these nothing is asked.
pub(super) struct Replaced(BTreeSet<u64>);

impl Replaced {
    pub(super) fn load(db: &Connection) -> rusqlite::Result<Self> {
        // An older version may have brought or removed some, and have left them in the table.
        let mut query = db.prepare(
            "SELECT num FROM replaced JOIN object USING (num) WHERE kind = 0 AND state < 2 AND nlink > 0",
        )?;
        let nums = query.query_map([], |row| row.get(0).map(number))?;
        Ok(Self(nums.collect::<rusqlite::Result<_>>()?))
    }

    pub(super) fn contains(&self, num: u64) -> bool {
        self.0.contains(&num)
    }
}

impl Core {
    /// Another version takes the place of a file that is here.
    pub(super) fn note_replaced(&mut self, num: u64) -> Done<()> {
        if self.replaced.0.insert(num) {
            self.begin()?;
            self.db.prepare_cached("INSERT OR IGNORE INTO replaced VALUES (?1)")?.execute([num as i64])?;
        }
        Ok(())
    }

    /// A file is not wanted for having been here, any more.
    pub(super) fn end_replaced(&mut self, num: u64) -> Done<()> {
        if self.replaced.0.remove(&num) {
            self.begin()?;
            self.db.prepare_cached("DELETE FROM replaced WHERE num = ?1")?.execute([num as i64])?;
        }
        Ok(())
    }

    /// As the database says.
    pub(super) fn load_replaced(&mut self) -> rusqlite::Result<()> {
        self.replaced = Replaced::load(&self.db)?;
        Ok(())
    }
}

impl Replica {
    /// Files that were here when another version took their place, each with the bytes it takes beyond what is here of it.
    /// In the order of their numbers after one, at most so many.
    pub(super) fn replaced(&self, after: u64, most: u32) -> Result<Vec<(u64, u64)>, Errno> {
        self.inner.look(|core| {
            let after = (Bound::Excluded(after), Bound::Unbounded);
            let nums: Vec<u64> = core.replaced.0.range(after).take(most as usize).copied().collect();
            let mut found = Vec::with_capacity(nums.len());
            for num in nums {
                let Some(node) = core.find(num)?.filter(|node| node.links > 0) else { continue };
                let here = match node.state {
                    State::Partial => core.present(num)?.iter().map(|range| range.end - range.start).sum(),
                    _ => 0,
                };
                found.push((num, taken(node.size).saturating_sub(here)));
            }
            Ok(found)
        })
    }
}
