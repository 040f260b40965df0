//! What the volume and each user of it hold, counted as it changes, and held against the limits.
//!
//! An object counts as long as it has a name here or somebody has it open: also what waits to be sent, and both sides of a
//! conflict. What synchronisation brings is counted and never refused.

use crate::replica::db::usage_counts::COUNT;
use crate::replica::db::usage_counts::Quota;
use crate::replica::db::usage_counts::UsageTracker;
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
use crate::replica::error::{OpError, Result};

/// Files that the kernel writes by itself, because they were opened before there was a limit, are looked at so often.
const RECOUNT_INTERVAL: Duration = Duration::from_millis(50);

impl ReplicaDb {
    /// With a commit.
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

    /// As of the last commit.
    pub(crate) fn reload_usage(&mut self) -> Result<()> {
        let limited = self.usage.limited.clone();
        self.usage = UsageTracker::load(&self.db)?;
        limited.store(!self.usage.limits.is_empty(), Ordering::Release);
        self.usage.limited = limited;
        for num in self.counted_unlinked.clone() {
            if let Some(node) = self.find(num)?.filter(|node| node.links == 0) {
                self.usage.add(&node, true);
            }
        }
        Ok(())
    }

    /// An object has no name, and somebody may have it open.
    pub(crate) fn mark_unlinked(&mut self, num: u64) -> Result<()> {
        self.unlinked_open.insert(num);
        if self.opens.contains_key(&num) { self.count_unlinked(num) } else { Ok(()) }
    }

    /// What has no name counts, for it is open.
    pub(crate) fn count_unlinked(&mut self, num: u64) -> Result<()> {
        if self.counted_unlinked.insert(num)
            && let Some(node) = self.find(num)?.filter(|node| node.links == 0)
        {
            self.usage.add(&node, true);
        }
        Ok(())
    }

    /// Nobody has it open any more.
    pub(crate) fn uncount_unlinked(&mut self, num: u64) -> Result<()> {
        if self.counted_unlinked.remove(&num)
            && let Some(node) = self.find(num)?.filter(|node| node.links == 0)
        {
            self.usage.take(&node, true);
        }
        Ok(())
    }

    /// It has a name again, or nobody uses it. Whether it had none.
    pub(crate) fn unmark_unlinked(&mut self, num: u64) -> Result<bool> {
        self.uncount_unlinked(num)?;
        Ok(self.unlinked_open.remove(&num))
    }

    /// EDQUOT where a limit would be passed.
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

    /// Counts what was written past the replica to files that are open. They only grow here: what a program is about to
    /// write was counted before.
    fn recount_open_files(&mut self) -> Result<()> {
        let open = self.opens.iter().filter(|(_, open)| open.writers > 0);
        let files: Vec<_> = open.map(|(num, open)| (*num, open.file.clone())).collect();
        for (num, file) in files {
            let (size, _) = open_file::size_and_mtime(&file)?;
            if let Some(mut node) = self.find(num)?.filter(|node| size > node.size) {
                self.begin()?;
                node.size = size;
                self.save(node);
                self.mark_grown(num);
            }
        }
        Ok(())
    }

    /// The end of an open is to know that it was changed, though its length is known already.
    fn mark_grown(&mut self, num: u64) {
        if let Some(open) = self.opens.get_mut(&num) {
            open.has_grown = true;
        }
    }

    fn grow(&mut self, num: u64, session: u64, to: u64) -> Result<()> {
        if self.opens.get(&num).is_none_or(|open| open.session != session) {
            return Ok(());
        }
        let Some(mut node) = self.find(num)?.filter(|node| to > node.size) else { return Ok(()) };
        self.check_quota(node.owner.0, Usage { bytes: to - node.size, objects: 0 }, false)?;
        self.begin()?;
        node.size = to;
        self.save(node);
        self.mark_grown(num);
        Ok(())
    }

    /// A file that is open may have become shorter, or not as long as was asked for.
    fn recount(&mut self, num: u64, session: u64) -> Result<()> {
        let Some(open) = self.opens.get(&num).filter(|open| open.session == session) else { return Ok(()) };
        let (size, _) = open_file::size_and_mtime(&open.file.clone())?;
        if let Some(mut node) = self.find(num)?.filter(|node| size != node.size) {
            self.begin()?;
            node.size = size;
            self.save(node);
            self.mark_grown(num);
        }
        Ok(())
    }
}

impl Replica {
    /// What is held, and what may be.
    ///
    /// # Errors
    /// EIO.
    pub fn quota(&self) -> Result<Quota, Errno> {
        self.change(|core, _| {
            core.recount_open_files()?;
            Ok(core.usage.quota())
        })
    }

    /// Whether a user's files may not become arbitrarily long: whoever writes them asks [`grow`](Self::grow) before.
    pub fn limits_writes(&self, user: u32) -> bool {
        self.is_limited() && {
            let core = self.inner.core.lock();
            let limits = &core.usage.limits;
            limits.volume.bytes.is_some() || limits.of(user).bytes.is_some()
        }
    }

    /// Whether there are limits.
    pub fn is_limited(&self) -> bool {
        self.inner.shared.limited.load(Ordering::Acquire)
    }

    /// A file that is open is about to become so long, if it is not.
    ///
    /// # Errors
    /// EDQUOT where a limit would be passed; EIO.
    pub fn grow(&self, num: u64, session: u64, to: u64) -> Result<(), Errno> {
        self.change(|core, _| core.grow(num, session, to))
    }

    /// A file that is open is perhaps not as long as was said.
    ///
    /// # Errors
    /// EIO.
    pub fn recount(&self, num: u64, session: u64) -> Result<(), Errno> {
        self.change(|core, _| core.recount(num, session))
    }

    /// Whether what was counted is what is there; each difference in a line. Reads all objects of the replica in a directory
    /// as they were committed last, also while it is open. `None`: there is no replica. With `repair`, what is there is
    /// counted anew: then it must not be open.
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
            // What an older version left is counted when it is opened.
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
        let there = rows(COUNT)?;
        let mut wrong = Vec::new();
        let mut users: Vec<u32> = counted.keys().chain(there.keys()).copied().collect();
        users.sort_unstable();
        users.dedup();
        for user in users {
            let of = |all: &HashMap<u32, Usage>| all.get(&user).copied().unwrap_or_default();
            let (said, is) = (of(&counted), of(&there));
            if said != is {
                wrong.push(format!(
                    "user {user} is counted with {} bytes in {} objects on this machine, and has {} in {}",
                    said.bytes, said.objects, is.bytes, is.objects
                ));
            }
        }
        if repair && !wrong.is_empty() {
            read.execute_batch(&format!("DELETE FROM usage; INSERT INTO usage {COUNT};"))?;
        }
        read.commit()?;
        Ok(Some(wrong))
    }
}
