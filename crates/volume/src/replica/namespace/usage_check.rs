//! Quota accounting: counts the bytes and objects of the volume and of each user, and enforces the limits.
//!
//! An object counts as long as it is linked or open on this node, including unsent changes and both sides of a conflict.
//! Changes of synchronisation are counted and never refused.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use rustix::io::Errno;

use crate::quota::Usage;
use crate::replica::Replica;
use crate::replica::data::open_file;
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::number;
use crate::replica::db::usage_counts::COUNT_USAGE_SQL;
use crate::replica::db::usage_counts::Quota;
use crate::replica::db::usage_counts::UsageTracker;
use crate::replica::error::{OpError, Result};

/// Interval at which files are examined that the kernel writes directly, because they were opened before a limit was set.
const RECOUNT_INTERVAL: Duration = Duration::from_millis(50);

impl ReplicaDb {
    /// Writes changed counts, as part of a commit.
    pub(crate) fn save_usage(&mut self) -> Result<()> {
        let mut set = self.db.prepare_cached("INSERT OR REPLACE INTO usage VALUES (?1, ?2, ?3)")?;
        let mut remove = self.db.prepare_cached("DELETE FROM usage WHERE owner = ?1")?;
        for user in &self.usage.dirty_users {
            let named = self.usage.by_user.get(user).map(|counts| counts.named).unwrap_or_default();
            match named.objects {
                0 => remove.execute([user])?,
                _ => set.execute(params![user, named.bytes as i64, named.objects as i64])?,
            };
        }
        drop((set, remove));
        let (by, unsaved) = (&mut self.usage.by_user, &mut self.usage.dirty_users);
        for user in unsaved.drain() {
            if by
                .get(&user)
                .is_some_and(|counts| counts.named == Usage::default() && counts.unlinked == Usage::default())
            {
                by.remove(&user);
            }
        }
        Ok(())
    }

    /// Reloads the counts of the last commit.
    pub(crate) fn reload_usage(&mut self) -> Result<()> {
        let limited = self.usage.limited.clone();
        self.usage = UsageTracker::load(&self.db)?;
        limited.store(!self.usage.limits.is_empty(), Ordering::Release);
        self.usage.limited = limited;
        for num in self.counted_unlinked.clone() {
            if let Some(inode) = self.find(num)?.filter(|inode| inode.links == 0) {
                self.usage.add(&inode, true);
            }
        }
        Ok(())
    }

    /// Records that an object is unlinked. It keeps counting if it is open.
    pub(crate) fn mark_unlinked(&mut self, num: u64) -> Result<()> {
        self.unlinked_open.insert(num);
        if self.opens.contains_key(&num) { self.count_unlinked(num) } else { Ok(()) }
    }

    /// Counts an unlinked object, because it is open.
    pub(crate) fn count_unlinked(&mut self, num: u64) -> Result<()> {
        if self.counted_unlinked.insert(num)
            && let Some(inode) = self.find(num)?.filter(|inode| inode.links == 0)
        {
            self.usage.add(&inode, true);
        }
        Ok(())
    }

    /// Stops counting an unlinked object after its last close.
    pub(crate) fn uncount_unlinked(&mut self, num: u64) -> Result<()> {
        if self.counted_unlinked.remove(&num)
            && let Some(inode) = self.find(num)?.filter(|inode| inode.links == 0)
        {
            self.usage.take(&inode, true);
        }
        Ok(())
    }

    /// Records that an object is linked again, or no longer used. Returns whether it was unlinked.
    pub(crate) fn unmark_unlinked(&mut self, num: u64) -> Result<bool> {
        self.uncount_unlinked(num)?;
        Ok(self.unlinked_open.remove(&num))
    }

    /// Returns EDQUOT if a limit would be exceeded.
    pub(crate) fn check_quota(&mut self, user: u32, more: Usage, only_user: bool) -> Result<()> {
        if self.usage.limits.is_empty() {
            return Ok(());
        }
        if self.usage.last_recount.is_none_or(|looked| looked.elapsed() >= RECOUNT_INTERVAL) {
            self.recount_open_files()?;
            self.usage.last_recount = Some(Instant::now());
        }
        if self.usage.exceeds(user, more, only_user) { Err(OpError::new(Errno::DQUOT)) } else { Ok(()) }
    }

    /// Counts writes to open files that bypassed the replica (passthrough). Sizes only grow here: a program's write is
    /// counted in advance.
    fn recount_open_files(&mut self) -> Result<()> {
        let open = self.opens.iter().filter(|(_, open)| open.writers > 0);
        let files: Vec<_> = open.map(|(num, open)| (*num, open.file.clone())).collect();
        for (num, file) in files {
            let (size, _) = open_file::size_and_mtime(&file)?;
            if let Some(mut inode) = self.find(num)?.filter(|inode| size > inode.size) {
                self.begin()?;
                inode.size = size;
                self.save(inode);
                self.mark_grown(num);
            }
        }
        Ok(())
    }

    /// Marks an open file as changed for its release, because its new length is already recorded.
    fn mark_grown(&mut self, num: u64) {
        if let Some(open) = self.opens.get_mut(&num) {
            open.length_recorded = true;
        }
    }

    fn grow(&mut self, num: u64, session: u64, to: u64) -> Result<()> {
        if self.opens.get(&num).is_none_or(|open| open.session != session) {
            return Ok(());
        }
        let Some(mut inode) = self.find(num)?.filter(|inode| to > inode.size) else { return Ok(()) };
        self.check_quota(inode.owner.0, Usage { bytes: to - inode.size, objects: 0 }, false)?;
        self.begin()?;
        inode.size = to;
        self.save(inode);
        self.mark_grown(num);
        Ok(())
    }

    /// Takes the actual size of an open file, which may have been shortened or not extended as announced.
    fn recount(&mut self, num: u64, session: u64) -> Result<()> {
        let Some(open) = self.opens.get(&num).filter(|open| open.session == session) else { return Ok(()) };
        let (size, _) = open_file::size_and_mtime(&open.file.clone())?;
        if let Some(mut inode) = self.find(num)?.filter(|inode| size != inode.size) {
            self.begin()?;
            inode.size = size;
            self.save(inode);
            self.mark_grown(num);
        }
        Ok(())
    }
}

impl Replica {
    /// Returns the current usage and the limits.
    ///
    /// # Errors
    /// EIO.
    pub fn quota(&self) -> Result<Quota, Errno> {
        self.change(|db, _| {
            db.recount_open_files()?;
            Ok(db.usage.quota())
        })
    }

    /// Reports whether a user's files have a size limit: writers then call [`grow`](Self::grow) first.
    pub fn limits_writes(&self, user: u32) -> bool {
        self.is_limited() && {
            let db = self.inner.db.lock();
            let limits = &db.usage.limits;
            limits.volume.bytes.is_some() || limits.of(user).bytes.is_some()
        }
    }

    /// Reports whether there are limits.
    pub fn is_limited(&self) -> bool {
        self.inner.shared.limited.load(Ordering::Acquire)
    }

    /// Counts the growth of an open file to a length, before it happens.
    ///
    /// # Errors
    /// EDQUOT if a limit would be exceeded; EIO.
    pub fn grow(&self, num: u64, session: u64, to: u64) -> Result<(), Errno> {
        self.change(|db, _| db.grow(num, session, to))
    }

    /// Takes the actual size of an open file, which may differ from the announced one.
    ///
    /// # Errors
    /// EIO.
    pub fn recount(&self, num: u64, session: u64) -> Result<(), Errno> {
        self.change(|db, _| db.recount(num, session))
    }

    /// Compares the counted usage with the objects of the replica in `directory`, and returns a line for each difference.
    /// Reads the state that was committed last, also while the replica is open; `None` if there is no replica. With
    /// `repair`, the usage is recounted; the replica must not be open then.
    ///
    /// # Errors
    /// See [`ReplicaError`](crate::replica::ReplicaError).
    pub fn check_usage(
        directory: &std::path::Path,
        repair: bool,
    ) -> Result<Option<Vec<String>>, crate::replica::ReplicaError> {
        let path = directory.join("replica.db");
        if !path.exists() {
            return Ok(None);
        }
        let _lock = if repair { Some(crate::replica::data::backing::lock(directory)?) } else { None };
        let mut db = Connection::open(&path)?;
        db.busy_timeout(Duration::from_secs(10))?;
        let found =
            db.query_row("SELECT value FROM meta WHERE key = 'format'", [], |row| row.get::<_, u32>(0))?;
        if found != crate::replica::db::schema::FORMAT {
            // Counts of an older format are computed when it is opened.
            return Ok(None);
        }
        let read = db.transaction()?;
        let rows = |query: &str| -> rusqlite::Result<HashMap<u32, Usage>> {
            let mut query = read.prepare(query)?;
            let rows = query.query_map([], |row| {
                Ok((row.get(0)?, Usage { bytes: number(row.get(1)?), objects: number(row.get(2)?) }))
            })?;
            rows.collect()
        };
        let counted = rows("SELECT owner, bytes, objects FROM usage")?;
        let actual = rows(COUNT_USAGE_SQL)?;
        let mut wrong = Vec::new();
        let mut users: Vec<u32> = counted.keys().chain(actual.keys()).copied().collect();
        users.sort_unstable();
        users.dedup();
        for user in users {
            let of = |all: &HashMap<u32, Usage>| all.get(&user).copied().unwrap_or_default();
            let (recorded, found) = (of(&counted), of(&actual));
            if recorded != found {
                wrong.push(format!(
                    "user {user}: {} bytes in {} objects recorded on this machine, {} in {} found",
                    recorded.bytes, recorded.objects, found.bytes, found.objects
                ));
            }
        }
        if repair && !wrong.is_empty() {
            read.execute_batch(&format!("DELETE FROM usage; INSERT INTO usage {COUNT_USAGE_SQL};"))?;
        }
        read.commit()?;
        Ok(Some(wrong))
    }
}
