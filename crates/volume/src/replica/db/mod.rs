//! The replica's database with its in-memory state, under one lock.
//!
//! All changes run in a transaction that the committer ends. Modified inodes are cached in memory and written before the
//! commit or before a query over several objects.
//!
//! Several modules are the stored halves of modules elsewhere in the replica:
//!
//! | file | tables | used by |
//! |---|---|---|
//! | `basis_cache.rs` | none: open files | `data/basis.rs` |
//! | `conflict_dirs.rs` | `conflict` | `sync_adapter/conflicts.rs` |
//! | `open_backing.rs` | none: open files | `data/open_file.rs` |
//! | `recent_opens.rs` | `recent` | `cache/eviction.rs` |
//! | `refetch_queue.rs` | `replaced` | `data/refetch.rs` |
//! | `store_rollback.rs` | `meta` | `cache/eviction.rs` |
//! | `unsynced_files.rs` | `unsure` | `data/unsynced.rs` |
//! | `usage_counts.rs` | `usage` | `namespace/usage_check.rs` |

pub(crate) mod basis_cache;
pub(crate) mod conflict_dirs;
pub(crate) mod group_commit;
pub(crate) mod inode;
mod inode_row;
pub(crate) mod open_backing;
pub(crate) mod reap;
pub(crate) mod recent_opens;
pub(crate) mod redo;
mod redo_connection;
pub(crate) mod refetch_queue;
pub(crate) mod schema;
mod store_rollback;
pub(crate) mod unsynced_files;
pub(crate) mod usage_counts;
mod wal_reserve;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, params};
use rustix::io::Errno;

use crate::failpoint::{Failpoint, point};
use crate::id::{ObjectId, Seq};
use crate::object::{Content, Field, Kind, Object, Time, VersionedObject};
use crate::replica::error::{OpError, Result};
use inode::{CacheState, Dirty, Inode, ROOT, number};
use inode_row::InodeRow;
use open_backing::OpenFile;
use recent_opens::{RecentOpens, counted_bytes};
use redo::RedoLog;
use redo_connection::RedoConnection;
use refetch_queue::RefetchQueue;
use unsynced_files::UnsyncedFiles;
use usage_counts::UsageTracker;

/// Maximum number of inodes cached in memory, of some 200 bytes each. Above it a commit clears the cache.
const MAX_CACHED_INODES: usize = 65_536;

/// Inode numbers reserved at a time. Numbers handed out in a lost transaction are above the last committed reservation.
pub(crate) const INO_RESERVATION: u64 = 4096;

/// The state of a replica. Every change happens in a transaction that the committer ends.
pub(crate) struct ReplicaDb {
    pub(crate) db: RedoConnection,
    redo: Option<Arc<RedoLog>>,
    /// Saved inodes that are not recorded for the redo log yet.
    unrecorded: HashSet<u64>,
    /// `cached_bytes` as last recorded for the redo log.
    cached_bytes_recorded: u64,
    /// Result of the operation that runs, for the request that caused it.
    operation_result: Option<u64>,
    inodes: HashMap<u64, Inode>,
    /// Inodes in memory that are not yet written to the database.
    dirty_rows: HashSet<u64>,
    in_transaction: bool,
    /// Changes since the last commit.
    pub(crate) changes: u32,
    next_ino: u64,
    reserved: u64,
    next_order: i64,
    next_id: u128,
    next_session: u64,
    pub(crate) opens: HashMap<u64, OpenFile>,
    /// Unlinked objects that are still referenced.
    pub(crate) unlinked_open: HashSet<u64>,
    /// Directories that present conflicts.
    pub(crate) conflicts: HashSet<u64>,
    /// Bytes of cached files; `cached_bytes_committed` is the value as of the last commit.
    pub(crate) cached_bytes: u64,
    cached_bytes_committed: u64,
    pub(crate) recent_opens: RecentOpens,
    pub(crate) unsynced: UnsyncedFiles,
    pub(crate) refetch_queue: RefetchQueue,
    /// Quota usage and limits.
    pub(crate) usage: UsageTracker,
    /// Unlinked objects that count towards the quota because they are open.
    pub(crate) counted_unlinked: HashSet<u64>,
    /// Objects that were pinned explicitly.
    pub(crate) pins: HashSet<u64>,
    /// The file that was created last.
    pub(crate) last_created: Option<(u64, Arc<File>)>,
    /// Files were scheduled for removal since the last commit.
    pub(crate) has_pending_unlinks: bool,
    /// Acknowledged changes were rolled back, and the caches are not yet invalidated.
    rolled_back: bool,
    /// Files marked as possibly modified, while the mark is not durable yet.
    pub(crate) uncommitted_marks: HashSet<u64>,
    /// Files may be open that this process does not know of yet: nothing is evicted.
    pub(crate) adopts_opens: bool,
    /// The store went back in time, so local contents may be the only copies: nothing is evicted.
    pub(crate) rollback_detected: bool,
}

impl ReplicaDb {
    pub(crate) fn new(db: Connection, first_id: u128) -> rusqlite::Result<Self> {
        let one = |query: &str| db.query_row(query, [], |row| row.get::<_, Option<i64>>(0));
        let reserved = number(one("SELECT max(value) FROM meta WHERE key = 'reserved'")?.unwrap_or(2));
        let used = number(one("SELECT max(num) FROM object")?.unwrap_or(0));
        let reserved = reserved.max(used + 1);
        let order = one("SELECT max(n) FROM base_object")?.max(one("SELECT max(n) FROM base_link")?);
        let cached_bytes = number(one("SELECT max(value) FROM meta WHERE key = 'here'")?.unwrap_or(0));
        let recent = RecentOpens::new(&db)?;
        let unsure = UnsyncedFiles::load(&db)?;
        let replaced = RefetchQueue::load(&db)?;
        let usage = UsageTracker::load(&db)?;
        let mut db = Self {
            redo: None,
            unrecorded: HashSet::new(),
            cached_bytes_recorded: cached_bytes,
            operation_result: None,
            inodes: HashMap::new(),
            dirty_rows: HashSet::new(),
            in_transaction: false,
            changes: 0,
            next_ino: reserved,
            reserved,
            next_order: order.unwrap_or(0) + 1,
            next_id: first_id,
            next_session: 0,
            opens: HashMap::new(),
            unlinked_open: HashSet::new(),
            conflicts: HashSet::new(),
            cached_bytes,
            cached_bytes_committed: cached_bytes,
            recent_opens: recent,
            unsynced: unsure,
            refetch_queue: replaced,
            usage,
            counted_unlinked: HashSet::new(),
            pins: HashSet::new(),
            last_created: None,
            // An earlier process may have left some.
            has_pending_unlinks: true,
            rolled_back: false,
            uncommitted_marks: HashSet::new(),
            adopts_opens: false,
            rollback_detected: store_rollback::load(&db)?,
            db: RedoConnection::new(db),
        };
        db.load_pins()?;
        Ok(db)
    }

    /// Starts a transaction if none is running.
    pub(crate) fn begin(&mut self) -> Result<()> {
        if !self.in_transaction {
            self.db.unrecorded().prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            self.in_transaction = true;
        }
        Ok(())
    }

    /// Commits the transaction. On failure it stays open for another attempt, unless the database has rolled it back by
    /// itself, as it does when the disk is full.
    pub(crate) fn commit(&mut self) -> Result<()> {
        if !self.in_transaction {
            return Ok(());
        }
        let done = self.end_transaction();
        if done.is_err() && self.in_transaction && self.db.is_autocommit() {
            self.roll_back();
        }
        done
    }

    fn end_transaction(&mut self) -> Result<()> {
        self.flush()?;
        if self.cached_bytes != self.cached_bytes_committed {
            let mut set = self.db.prepare_cached("INSERT OR REPLACE INTO meta VALUES ('here', ?1)")?;
            set.execute([self.cached_bytes as i64])?;
        }
        self.save_usage()?;
        point(Failpoint::ReplicaCommit)?;
        if let Some(redo) = &self.redo {
            redo.record_epoch(self.db.unrecorded())?;
        }
        self.db.unrecorded().prepare_cached("COMMIT")?.execute([])?;
        self.redo_committed();
        self.cached_bytes_committed = self.cached_bytes;
        self.in_transaction = false;
        self.changes = 0;
        if self.inodes.len() > MAX_CACHED_INODES {
            self.inodes.clear();
        }
        Ok(point(Failpoint::ReplicaCommitted)?)
    }

    /// Rolls back everything since the last commit.
    pub(crate) fn roll_back(&mut self) {
        if self.in_transaction && !self.db.is_autocommit() {
            self.db.execute_batch("ROLLBACK").ok();
        }
        self.discard_redo();
        if self.changes > 0 {
            tracing::error!(
                "transaction of the cache database failed: {} changes since the last commit are lost",
                self.changes
            );
            self.rolled_back = true;
        }
        self.in_transaction = false;
        self.changes = 0;
        self.inodes.clear();
        self.dirty_rows.clear();
        self.last_created = None;
        // Numbers already handed out stay used; the next allocation records them.
        self.reserved = self.next_ino;
        self.cached_bytes = self.cached_bytes_committed;
        self.drop_relinked().ok();
        if let Ok(conflicts) = conflict_dirs::directories(self) {
            self.conflicts = conflicts;
        }
        self.load_pins().ok();
        self.reload_usage().ok();
        self.load_unsynced().ok();
        self.load_refetch_queue().ok();
        self.mark_written().ok();
    }

    /// Marks files open for writing as modified: their contents may differ from the metadata, independent of what was rolled back.
    fn mark_written(&mut self) -> Result<()> {
        let written = self.opens.iter().filter(|(_, open)| open.writers > 0);
        for num in written.map(|(num, _)| *num).collect::<Vec<_>>() {
            if let Some(mut inode) = self.find(num)? {
                self.begin()?;
                self.uncommitted_marks.insert(num);
                inode.maybe_dirty = true;
                // The whole content was fetched before the file was opened for writing, which may have been rolled back as
                // well.
                self.clear_present(num)?;
                inode.state = CacheState::Complete;
                self.mark_dirty(&mut inode, Dirty::CONTENT)?;
                self.save(inode);
            }
        }
        Ok(())
    }

    /// Drops the unlinked state of objects whose names the rollback restored.
    fn drop_relinked(&mut self) -> Result<()> {
        for num in self.unlinked_open.clone() {
            if self.find(num)?.is_some_and(|inode| inode.links > 0) {
                self.unlinked_open.remove(&num);
                self.counted_unlinked.remove(&num);
            }
        }
        Ok(())
    }

    /// Reports whether acknowledged changes were rolled back since the last call.
    pub(crate) fn take_rolled_back(&mut self) -> bool {
        std::mem::take(&mut self.rolled_back)
    }

    /// Writes cached inodes to the database, before a query over more than one object.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.record_inodes();
        let mut insert = self.db.unrecorded().prepare_cached(inode_row::UPSERT)?;
        // If one fails, all stay dirty.
        for num in &self.dirty_rows {
            let Some(inode) = self.inodes.get(num) else { continue };
            inode_row::upsert(&mut insert, &InodeRow::from(inode))?;
        }
        drop(insert);
        self.dirty_rows.clear();
        Ok(())
    }

    /// Returns an object, linked or not.
    pub(crate) fn find(&mut self, num: u64) -> Result<Option<Inode>> {
        if let Some(inode) = self.inodes.get(&num) {
            return Ok(Some(inode.clone()));
        }
        let query = format!("SELECT {} FROM object WHERE num = ?1", Inode::COLUMNS);
        let inode = self.db.prepare_cached(&query)?.query_row([num as i64], Inode::from_row).optional()?;
        if let Some(inode) = &inode {
            self.inodes.insert(num, inode.clone());
        }
        Ok(inode)
    }

    /// Returns an object that is linked or still referenced.
    pub(crate) fn inode(&mut self, num: u64) -> Result<Inode> {
        let exists = |inode: &Inode| inode.links > 0 || num == ROOT || self.unlinked_open.contains(&num);
        match self.inodes.get(&num) {
            Some(inode) if exists(inode) => return Ok(inode.clone()),
            Some(_) => return Err(OpError::new(Errno::STALE)),
            None => {}
        }
        match self.find(num)? {
            Some(inode) if inode.links > 0 || num == ROOT || self.unlinked_open.contains(&num) => Ok(inode),
            _ => Err(OpError::new(Errno::STALE)),
        }
    }

    /// Returns a directory that entries can be created in.
    pub(crate) fn directory(&mut self, num: u64) -> Result<Inode> {
        let inode = self.inode(num)?;
        match inode.is_directory() {
            false => Err(OpError::new(Errno::NOTDIR)),
            true if inode.links == 0 && num != ROOT => Err(OpError::new(Errno::NOENT)),
            true => Ok(inode),
        }
    }

    /// Replaces the state of an object.
    pub(crate) fn save(&mut self, inode: Inode) {
        self.dirty_rows.insert(inode.ino);
        if self.redo.is_some() {
            self.unrecorded.insert(inode.ino);
        }
        self.cached_bytes = self.cached_bytes.saturating_add(counted_bytes(&inode));
        let nameless = self.counted_unlinked.contains(&inode.ino);
        self.usage.add(&inode, nameless);
        // An inode that is not cached is new: the caller loaded an existing one before, under the same lock.
        if let Some(before) = self.inodes.insert(inode.ino, inode) {
            self.cached_bytes = self.cached_bytes.saturating_sub(counted_bytes(&before));
            self.usage.take(&before, nameless);
        }
    }

    /// Returns the object of an id.
    pub(crate) fn find_id(&mut self, id: ObjectId) -> Result<Option<Inode>> {
        self.flush()?;
        let num: Option<i64> = self
            .db
            .prepare_cached("SELECT num FROM object WHERE id = ?1")?
            .query_row([id.to_bytes()], |row| row.get(0))
            .optional()?;
        num.map_or(Ok(None), |num| self.find(number(num)))
    }

    /// Deletes an object.
    pub(crate) fn erase(&mut self, num: u64) -> Result<()> {
        self.begin()?;
        let (mut was_sent, mut xattrs) = (true, true);
        match self.find(num)? {
            Some(inode) => {
                self.cached_bytes = self.cached_bytes.saturating_sub(counted_bytes(&inode));
                let nameless = self.counted_unlinked.contains(&num);
                self.usage.take(&inode, nameless);
                if inode.state != CacheState::Complete {
                    self.clear_present(num)?;
                }
                (was_sent, xattrs) = (inode.created_seq != Seq(0), inode.xattrs);
            }
            None => self.clear_present(num)?,
        }
        self.finish_refetch(num)?;
        self.pins.remove(&num);
        self.inodes.remove(&num);
        self.dirty_rows.remove(&num);
        self.unrecorded.remove(&num);
        // Most objects removed in quick succession were created just before: rows that they cannot have are not deleted.
        let queries = [
            (true, "DELETE FROM object WHERE num = ?1"),
            (true, "DELETE FROM base_object WHERE num = ?1"),
            (xattrs, "DELETE FROM xattr WHERE num = ?1"),
            (was_sent, "DELETE FROM field_seq WHERE num = ?1"),
            (self.recent_opens.may_have_rows(), "DELETE FROM recent WHERE num = ?1"),
        ];
        for (_, query) in queries.into_iter().filter(|(has_rows, _)| *has_rows) {
            self.db.prepare_cached(query)?.execute([num as i64])?;
        }
        Ok(())
    }

    /// Allocates an unused inode number.
    pub(crate) fn new_number(&mut self) -> Result<u64> {
        if self.next_ino == self.reserved {
            self.begin()?;
            self.reserved += INO_RESERVATION;
            self.db
                .prepare_cached("INSERT OR REPLACE INTO meta VALUES ('reserved', ?1)")?
                .execute([self.reserved as i64])?;
        }
        self.next_ino += 1;
        Ok(self.next_ino - 1)
    }

    /// Returns the first number that is certainly unused.
    pub(crate) fn reserved_until(&self) -> u64 {
        self.reserved
    }

    /// Returns the last commit of the store that is applied.
    pub(crate) fn cursor(&self) -> Result<Seq> {
        let mut query = self.db.prepare_cached("SELECT value FROM meta WHERE key = 'cursor'")?;
        Ok(Seq(number(query.query_row([], |row| row.get(0))?)))
    }

    pub(crate) fn set_cursor(&mut self, cursor: Seq) -> Result<()> {
        self.begin()?;
        let mut set = self.db.prepare_cached("UPDATE meta SET value = ?1 WHERE key = 'cursor'")?;
        set.execute([cursor.0 as i64])?;
        Ok(())
    }

    /// Returns a new object id. Consecutive ids are adjacent in every database.
    pub(crate) fn new_id(&mut self) -> ObjectId {
        self.next_id = self.next_id.wrapping_add(1);
        ObjectId(self.next_id)
    }

    pub(crate) fn new_session(&mut self) -> u64 {
        self.next_session += 1;
        self.next_session
    }

    /// Returns the next position in the order of changes.
    pub(crate) fn next_dirty_order(&mut self) -> i64 {
        self.next_order += 1;
        self.next_order - 1
    }

    /// Marks fields of an object as changed. The first change records the base version. An object that only presents a
    /// conflict cannot be changed: EPERM.
    pub(crate) fn mark_dirty(&mut self, inode: &mut Inode, what: Dirty) -> Result<()> {
        if inode.is_conflict_only() && !what.contains(Dirty::NEW) {
            return Err(OpError::new(Errno::PERM));
        }
        self.begin()?;
        if inode.dirty.is_empty() {
            let base = match what.contains(Dirty::NEW) {
                true => None,
                false => Some(postcard::to_stdvec(&self.stored(inode)?)?),
            };
            let n = self.next_dirty_order();
            self.db
                .prepare_cached("INSERT OR IGNORE INTO base_object (num, object, n) VALUES (?1, ?2, ?3)")?
                .execute(params![inode.ino as i64, base, n])?;
        }
        inode.dirty |= what;
        inode.generation += 1;
        Ok(())
    }

    /// Returns the base version of an object that was changed since; `Some(None)` if the object is new.
    pub(crate) fn base(&self, num: u64) -> Result<Option<Option<VersionedObject>>> {
        let row: Option<Option<Vec<u8>>> = self
            .db
            .prepare_cached("SELECT object FROM base_object WHERE num = ?1")?
            .query_row([num as i64], |row| row.get(0))
            .optional()?;
        Ok(match row {
            None => None,
            Some(None) => Some(None),
            Some(Some(bytes)) => Some(Some(postcard::from_bytes(&bytes)?)),
        })
    }

    /// Returns the last known content of a regular file.
    pub(crate) fn content(&self, num: u64) -> Result<Content> {
        let bytes: Option<Option<Vec<u8>>> = self
            .db
            .prepare_cached("SELECT content FROM object WHERE num = ?1")?
            .query_row([num as i64], |row| row.get(0))
            .optional()?;
        Ok(match bytes.flatten() {
            Some(bytes) => postcard::from_bytes(&bytes)?,
            None => Content::empty(),
        })
    }

    /// Sets the last known content; the row must exist.
    pub(crate) fn set_content(&mut self, num: u64, content: &Content) -> Result<()> {
        self.flush()?;
        let bytes = postcard::to_stdvec(content)?;
        self.db
            .prepare_cached("UPDATE object SET content = ?2 WHERE num = ?1")?
            .execute(params![num as i64, bytes])?;
        Ok(())
    }

    /// Returns all extended attributes.
    pub(crate) fn xattrs(&self, inode: &Inode) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        if !inode.xattrs {
            return Ok(BTreeMap::new());
        }
        let mut query = self.db.prepare_cached("SELECT name, value FROM xattr WHERE num = ?1")?;
        let rows = query.query_map([inode.ino as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Returns the object in its local state. Its content is the last known one.
    pub(crate) fn object(&self, inode: &Inode) -> Result<Object> {
        let content = if inode.kind == Kind::Regular { self.content(inode.ino)? } else { Content::empty() };
        Ok(Object {
            id: inode.id,
            kind: inode.kind,
            mode: inode.mode,
            owner: inode.owner,
            group: inode.group,
            modified: inode.modified,
            target: inode.target.to_vec(),
            content,
            xattrs: self.xattrs(inode)?,
        })
    }

    /// Returns the object in its local state, with the commits that set its fields.
    pub(crate) fn stored(&self, inode: &Inode) -> Result<VersionedObject> {
        let mut query = self.db.prepare_cached("SELECT field, seq FROM field_seq WHERE num = ?1")?;
        let mut rows = query.query([inode.ino as i64])?;
        let mut set = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let field: Vec<u8> = row.get(0)?;
            set.insert(postcard::from_bytes::<Field>(&field)?, Seq(number(row.get(1)?)));
        }
        Ok(VersionedObject {
            object: self.object(inode)?,
            created: inode.created_seq,
            field_versions: set,
            links: inode.links,
        })
    }

    /// Records the commits that set an object's fields.
    pub(crate) fn set_seqs(&mut self, num: u64, stored: &VersionedObject) -> Result<()> {
        self.db.prepare_cached("DELETE FROM field_seq WHERE num = ?1")?.execute([num as i64])?;
        let mut insert = self.db.prepare_cached("INSERT INTO field_seq VALUES (?1, ?2, ?3)")?;
        for (field, seq) in &stored.field_versions {
            insert.execute(params![num as i64, postcard::to_stdvec(field)?, seq.0 as i64])?;
        }
        Ok(())
    }
}

/// The redo log.
impl ReplicaDb {
    /// Begins to write a redo log. Nothing may be uncommitted.
    pub(crate) fn enable_redo(&mut self, redo: Arc<RedoLog>) {
        self.redo = Some(redo);
        self.db.enable(true);
    }

    /// Stops to write the redo log: no other process will execute it.
    pub(crate) fn disable_redo(&mut self) {
        self.redo = None;
        self.db.enable(false);
        self.unrecorded.clear();
    }

    /// Notes the result of the operation that runs, which a successor returns if the request is sent again.
    pub(crate) fn note_result(&mut self, result: u64) {
        self.operation_result = self.redo.is_some().then_some(result);
    }

    /// Records the saved inodes, in front of statements that build on their rows.
    fn record_inodes(&mut self) {
        let Some(pending) = self.db.pending() else { return };
        for num in self.unrecorded.drain() {
            if let Some(inode) = self.inodes.get(&num) {
                pending.inode(inode);
            }
        }
    }

    /// Appends the changes since the last call to the redo log. `request`: the request of a user that made them, or 0. Returns
    /// its result, which is not in the log, if the log is full and the changes must be committed.
    pub(crate) fn append_redo(&mut self, request: u64) -> Result<(), FullLog> {
        let result = self.operation_result.take().filter(|_| request != 0);
        let Some(redo) = self.redo.clone() else { return Ok(()) };
        self.record_inodes();
        let Some(pending) = self.db.pending() else { return Ok(()) };
        if self.cached_bytes != self.cached_bytes_recorded {
            pending.cached_bytes(self.cached_bytes);
            self.cached_bytes_recorded = self.cached_bytes;
        }
        for user in &self.usage.dirty_users {
            let named = self.usage.by_user.get(user).map(|counts| counts.named).unwrap_or_default();
            pending.usage(*user, named.bytes, named.objects);
        }
        if let Some(result) = result {
            pending.result(request, result);
        }
        let result = result.map(|result| (request, result));
        if !redo.append(pending) {
            return Err(FullLog { result });
        }
        if let Some((request, result)) = result {
            redo.add_result(request, result);
        }
        Ok(())
    }

    /// Records a result after its change was committed.
    pub(crate) fn add_result(&self, full: &FullLog) {
        if let (Some(redo), Some((request, result))) = (&self.redo, full.result) {
            redo.add_result(request, result);
        }
    }

    fn redo_committed(&mut self) {
        if let Some(redo) = &self.redo {
            redo.committed();
        }
        self.unrecorded.clear();
        self.cached_bytes_recorded = self.cached_bytes;
        self.db.pending().into_iter().for_each(redo::PendingRecords::clear);
    }

    fn discard_redo(&mut self) {
        if let Some(redo) = &self.redo {
            redo.discard();
        }
        self.unrecorded.clear();
        self.operation_result = None;
        self.cached_bytes_recorded = self.cached_bytes_committed;
        self.db.pending().into_iter().for_each(redo::PendingRecords::clear);
    }
}

/// The redo log is full: the change must be committed, and its result is recorded then.
pub(crate) struct FullLog {
    result: Option<(u64, u64)>,
}

/// Returns the current time of the system clock.
pub(crate) fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
