//! Deferred removal of backing files. An evicted or deleted file's row is committed first; its backing file is removed after
//! that commit is durable, unless the object is cached or open again at that time.

use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::CacheState;
use crate::replica::error::Result;

/// The state of an object whose backing file is scheduled for removal.
pub(crate) enum ReapState {
    /// Deleted: its number is never used again.
    Unknown,
    /// Known, and not cached.
    Absent,
    /// Cached again.
    Cached,
    /// Not cached, but open, so that its backing file is about to be filled.
    Open,
}

impl ReplicaDb {
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
        Ok(self.find(num)?.is_some_and(|inode| inode.state == CacheState::Absent)
            && !self.opens.contains_key(&num)
            && self.db.prepare_cached("SELECT 1 FROM doomed WHERE num = ?1")?.exists([num as i64])?)
    }

    /// Returns the state of an object whose backing file is scheduled for removal.
    pub(crate) fn reap_state(&mut self, num: u64) -> Result<ReapState> {
        Ok(match self.find(num)? {
            None => ReapState::Unknown,
            Some(inode) if inode.state != CacheState::Absent => ReapState::Cached,
            Some(_) if self.opens.contains_key(&num) => ReapState::Open,
            Some(_) => ReapState::Absent,
        })
    }
}
