//! Data that the store already has and that has not been fsynced locally. After a machine crash it is discarded and fetched
//! again.
//!
//! A reader of fetched data does not wait for the disk: the file is recorded as unsynced together with its cached ranges. So
//! is a locally written file once the store has it. Before a write to such a file, it is fsynced.

use rusqlite::{OptionalExtension as _, params};
use rustix::io::Errno;

use crate::failpoint::{Failpoint, OnDisk, on_disk, point};
use crate::replica::Inner;
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::CacheState;
use crate::replica::db::unsynced_files::UnsyncedFiles;
use crate::replica::error::{Result, errno};

/// Maximum number of files that are fsynced one by one; more are synced by one call for the whole file system.
const MAX_SINGLE_SYNCS: usize = 32;

impl ReplicaDb {
    /// Records that data was fetched into a file.
    pub(crate) fn record_unsynced(&mut self, num: u64) -> Result<()> {
        self.unsynced.next += 1;
        if self.unsynced.files.insert(num, self.unsynced.next).is_none() {
            self.begin()?;
            self.db.prepare_cached("INSERT OR IGNORE INTO unsure VALUES (?1)")?.execute([num as i64])?;
        }
        Ok(())
    }

    /// Reloads the committed state.
    pub(crate) fn load_unsynced(&mut self) -> rusqlite::Result<()> {
        self.unsynced.files = UnsyncedFiles::load(&self.db)?.files;
        Ok(())
    }

    pub(crate) fn is_unsynced(&self, num: u64) -> bool {
        self.unsynced.files.contains_key(&num)
    }

    /// Marks files as synced if no data was fetched into them since the given counters.
    fn mark_synced(&mut self, files: &[(u64, u64)]) -> Result<()> {
        self.begin()?;
        for (num, as_of) in files {
            if self.unsynced.files.get(num) == Some(as_of) {
                self.db.prepare_cached("DELETE FROM unsure WHERE num = ?1")?.execute([*num as i64])?;
                self.unsynced.files.remove(num);
            }
        }
        Ok(())
    }

    /// Discards unsynced data if the machine was restarted. Returns whether it was.
    pub(crate) fn discard_unsynced(&mut self) -> Result<bool> {
        self.begin()?;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let query = "SELECT value FROM meta WHERE key = 'boot'";
        let before: Option<String> = self.db.query_row(query, [], |row| row.get(0)).optional()?;
        self.db.execute("INSERT OR REPLACE INTO meta VALUES ('boot', ?1)", params![boot])?;
        if !boot.is_empty() && before.as_ref() == Some(&boot) {
            return Ok(false);
        }
        for (num, _) in std::mem::take(&mut self.unsynced.files) {
            let Some(mut inode) = self.find(num)?.filter(|inode| !inode.maybe_dirty && inode.is_regular())
            else {
                continue;
            };
            self.clear_present(num)?;
            self.schedule_unlink(num)?;
            inode.state = CacheState::Absent;
            self.save(inode);
        }
        self.db.execute("DELETE FROM unsure", [])?;
        Ok(true)
    }
}

impl Inner {
    /// Makes all fetched data durable. Returns whether anything was unsynced.
    pub(crate) fn sync_all_fetched(&self) -> Result<bool, Errno> {
        let files: Vec<(u64, u64)> =
            self.db.lock().unsynced.files.iter().map(|(num, as_of)| (*num, *as_of)).collect();
        match files.len() {
            0 => return Ok(false),
            1..=MAX_SINGLE_SYNCS => files.iter().try_for_each(|(num, _)| self.sync_backing(*num))?,
            _ => self.shared.files.sync_all()?,
        }
        point(Failpoint::FetchSynced)?;
        self.change(|db, _| db.mark_synced(&files))?;
        Ok(true)
    }

    /// Makes the data that was fetched into a file durable.
    pub(crate) fn sync_one_fetched(&self, num: u64) -> Result<(), Errno> {
        let as_of = self.db.lock().unsynced.files.get(&num).copied();
        let Some(as_of) = as_of else { return Ok(()) };
        self.sync_backing(num)?;
        point(Failpoint::FetchSynced)?;
        self.change(|db, _| db.mark_synced(&[(num, as_of)]))
    }

    fn sync_backing(&self, num: u64) -> Result<(), Errno> {
        match self.shared.files.existing(num) {
            Ok(file) => {
                file.sync_data().map_err(errno)?;
                on_disk(OnDisk::File(&file));
                Ok(())
            }
            // It was evicted meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(errno(error)),
        }
    }
}
