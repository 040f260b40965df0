//! The SQLite engine: a store in one file, or in memory. Needs no server; serves one machine and its gateway clients.

mod admin;
mod gc_lock;
mod history;
mod lease;
mod rows;
mod schema;

use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params};
use shunt_volume_types::failpoint::{Failpoint, point};
use shunt_volume_types::id::{NodeName, ObjectId, Seq, VolumeName};
use shunt_volume_types::object::{ChunkId, LinkName, Object, StoredLink, Time, VersionedObject};

use crate::descriptor_format::is_sealed_log;
use crate::history::History;
use crate::transaction::{Batch, Row, Rows};
use crate::validate::{UNSEALED, are_sealed};
use crate::{
    ChunkLocation, Clock, LeaseRequest, LeaseResponse, LogEntry, MAX_KEPT_RESULTS, MetaStore, Page, Rejected,
    StoreError, Transaction, codec, system_clock,
};

use rows::Table;
pub use schema::tighten;

/// Polling interval of a wait, for commits of other processes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The metadata of one volume in a SQLite file of this machine.
pub struct SqliteStore {
    /// The only write connection. A store in memory reads through it as well.
    writer: Mutex<Connection>,
    /// Idle read connections; `None`: in memory.
    readers: Option<(Box<Path>, Mutex<Vec<Connection>>)>,
    committed: (Mutex<()>, Condvar),
    leases: lease::Leases,
    clock: Clock,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.readers.as_ref().map(|(path, _)| path))
            .finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Creates a store in a file that does not exist or is empty. `descriptor` is stored unchanged.
    ///
    /// # Errors
    /// [`StoreError::Exists`]; [`StoreError::Unreachable`] if the file cannot be created.
    pub fn create(
        path: &Path,
        name: &VolumeName,
        root: &Object,
        descriptor: &[u8],
    ) -> Result<Self, StoreError> {
        Self::make(schema::create(Some(path))?, Some(path), name, root, descriptor)
    }

    /// Creates a store in memory, which lives as long as this value.
    ///
    /// # Errors
    /// [`StoreError`] for an error of SQLite.
    pub fn in_memory(name: &VolumeName, root: &Object, descriptor: &[u8]) -> Result<Self, StoreError> {
        Self::make(schema::create(None)?, None, name, root, descriptor)
    }

    /// Opens an existing store.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] if the file does not exist, [`StoreError::Format`] if it is no store or a newer one.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let db = schema::open(path)?;
        // An older version may have created the files with wider permissions.
        schema::tighten_all(path);
        Ok(Self::over(db, Some(path)))
    }

    /// Replaces the clock of commit times.
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Returns the descriptor that [`create`](Self::create) stored.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    pub fn descriptor(&self) -> Result<Vec<u8>, StoreError> {
        self.read(|db| db.query_row("SELECT description FROM about", [], |row| row.get(0)).map_err(fault))
    }

    fn over(db: Connection, path: Option<&Path>) -> Self {
        Self {
            writer: Mutex::new(db),
            readers: path.map(|path| (path.into(), Mutex::default())),
            committed: Default::default(),
            leases: lease::Leases::for_store(path),
            clock: system_clock(),
        }
    }

    fn make(
        mut db: Connection,
        path: Option<&Path>,
        name: &VolumeName,
        root: &Object,
        descriptor: &[u8],
    ) -> Result<Self, StoreError> {
        let batch = db.transaction_with_behavior(TransactionBehavior::Exclusive).map_err(fault)?;
        if schema::is_filled(&batch)? {
            return Err(StoreError::Exists(name.clone()));
        }
        schema::fill(&batch)?;
        batch
            .execute(
                "INSERT INTO about (one, head, forgotten, description) VALUES (0, 0, 0, ?)",
                [descriptor],
            )
            .map_err(fault)?;
        let stored = VersionedObject {
            object: root.clone(),
            created: Seq(0),
            field_versions: Default::default(),
            links: 0,
        };
        rows::put_object(&batch, &Row { stored, parent: None, names: 0 }, false).map_err(fault)?;
        batch.commit().map_err(fault)?;
        Ok(Self::over(db, path))
    }

    fn read<T>(&self, what: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let Some((path, idle)) = &self.readers else { return what(&self.writer.lock()) };
        let taken = idle.lock().pop();
        let db = match taken {
            Some(db) => db,
            None => schema::open(path)?,
        };
        let answer = what(&db);
        let mut idle = idle.lock();
        if idle.len() < 4 {
            idle.push(db);
        }
        answer
    }
}

fn head(db: &Connection) -> Result<Seq, StoreError> {
    db.prepare_cached("SELECT head FROM about")
        .and_then(|mut query| query.query_row([], |row| row.get::<_, i64>(0)))
        .map(|head| Seq(head as u64))
        .map_err(fault)
}

/// Reports whether the log of the volume is sealed, by the format of its descriptor.
fn is_sealed(db: &Connection) -> Result<bool, StoreError> {
    db.prepare_cached("SELECT substr(description, 1, 4) FROM about")
        .and_then(|mut query| query.query_row([], |row| row.get::<_, Option<Vec<u8>>>(0)))
        .map(|format| format.is_some_and(|format| is_sealed_log(&format)))
        .map_err(fault)
}

/// Returns the last entry that was truncated from the log.
fn forgotten(db: &Connection) -> Result<Seq, StoreError> {
    db.prepare_cached("SELECT forgotten FROM about")
        .and_then(|mut query| query.query_row([], |row| row.get::<_, i64>(0)))
        .map(|seq| Seq(seq as u64))
        .map_err(fault)
}

fn latest(db: &Connection) -> Result<Time, StoreError> {
    db.prepare_cached("SELECT latest FROM about")
        .and_then(|mut query| query.query_row([], |row| row.get(0).map(Time)))
        .map_err(fault)
}

fn stop(at: Failpoint) -> Result<(), StoreError> {
    point(at).map_err(|errno| StoreError::Unreachable(errno.to_string()))
}

/// Maps an error of SQLite to a [`StoreError`].
fn fault(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ConstraintViolation) => {
            StoreError::Damaged(error.to_string())
        }
        None => StoreError::Damaged(error.to_string()),
        // Busy, full, unreadable: may be temporary.
        Some(_) => StoreError::Unreachable(error.to_string()),
    }
}

fn answered(db: &Connection, node: &NodeName, token: u128) -> Result<Option<CommitResults>, StoreError> {
    let mut query =
        db.prepare_cached("SELECT answer FROM answer WHERE node = ? AND token = ?").map_err(fault)?;
    query
        .query_row(params![node.as_str(), token.to_be_bytes()], |row| row.get::<_, Vec<u8>>(0))
        .optional()
        .map_err(fault)?
        .map(|bytes| codec::decode("a commit result", &bytes))
        .transpose()
}

fn remember(db: &Connection, node: &NodeName, token: u128, answers: &CommitResults) -> rusqlite::Result<()> {
    let bytes = codec::encode(answers);
    db.prepare_cached("INSERT INTO answer (node, token, answer) VALUES (?, ?, ?)")?.execute(params![
        node.as_str(),
        token.to_be_bytes(),
        bytes
    ])?;
    let new = db.last_insert_rowid();
    db.prepare_cached("DELETE FROM answer WHERE n <= ?")?.execute([new - MAX_KEPT_RESULTS as i64])?;
    Ok(())
}

type CommitResults = Vec<Result<Seq, Rejected>>;

impl MetaStore for SqliteStore {
    fn head(&self) -> Result<Seq, StoreError> {
        self.read(head)
    }

    fn commit(
        &self,
        node: &NodeName,
        token: u128,
        items: &[Transaction],
    ) -> Result<CommitResults, StoreError> {
        let mut writer = self.writer.lock();
        // IMMEDIATE: no other process commits between the reads and the writes of this batch.
        let batch = writer.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
        if let Some(answers) = answered(&batch, node, token)? {
            return Ok(answers);
        }
        if is_sealed(&batch)? && !are_sealed(items) {
            return Err(StoreError::Denied(UNSEALED.to_owned()));
        }
        let mut work = Batch::new(Table(&batch), head(&batch)?);
        let answers = items.iter().map(|item| work.item(item)).collect::<Result<CommitResults, _>>()?;
        // Commit times never go back, even if the clock is set back.
        let at = (self.clock)().max(latest(&batch)?);
        rows::write(&batch, node, at, &work.finish()).map_err(fault)?;
        remember(&batch, node, token, &answers).map_err(fault)?;
        stop(Failpoint::StoreCommit)?;
        batch.commit().map_err(fault)?;
        stop(Failpoint::StoreCommitted)?;
        drop(writer);
        let _held = self.committed.0.lock();
        self.committed.1.notify_all();
        Ok(answers)
    }

    fn get(&self, ids: &[ObjectId]) -> Result<Vec<Option<VersionedObject>>, StoreError> {
        self.read(|db| ids.iter().map(|id| Ok(Table(db).object(*id)?.map(|row| row.stored))).collect())
    }

    fn scan(&self, from: ObjectId, limit: usize) -> Result<Page, StoreError> {
        self.read(|db| {
            let mut page = Page::default();
            let mut objects = db
                .prepare_cached("SELECT id, body FROM object WHERE id >= ? ORDER BY id LIMIT ?")
                .map_err(fault)?;
            let limit = limit.clamp(1, u32::MAX as usize);
            let mut found = objects.query(params![from.to_bytes(), limit as i64 + 1]).map_err(fault)?;
            while let Some(row) = found.next().map_err(fault)? {
                if page.objects.len() == limit {
                    page.next = Some(ObjectId::from_bytes(row.get(0).map_err(fault)?));
                    break;
                }
                let body: Vec<u8> = row.get(1).map_err(fault)?;
                page.objects.push(codec::decode("an object", &body)?);
            }
            let (Some(first), Some(last)) = (page.objects.first(), page.objects.last()) else {
                return Ok(page);
            };
            let mut links = db
                .prepare_cached("SELECT parent, name, child, seq FROM link WHERE parent BETWEEN ? AND ?")
                .map_err(fault)?;
            let between = [first.object.id.to_bytes(), last.object.id.to_bytes()];
            let found = links
                .query_map(between, |row| {
                    let at = LinkName { parent: ObjectId::from_bytes(row.get(0)?), name: row.get(1)? };
                    let set = Seq(row.get::<_, i64>(3)? as u64);
                    Ok(StoredLink { at, child: ObjectId::from_bytes(row.get(2)?), set })
                })
                .map_err(fault)?;
            page.links = found.collect::<Result<_, _>>().map_err(fault)?;
            Ok(page)
        })
    }

    fn log_since(&self, after: Seq, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        self.read(|db| {
            let seen = db.unchecked_transaction().map_err(fault)?;
            if after < forgotten(&seen)? {
                return Err(StoreError::Forgotten(after));
            }
            let mut log = seen
                .prepare_cached("SELECT seq, node, at, change FROM log WHERE seq > ? ORDER BY seq LIMIT ?")
                .map_err(fault)?;
            let limit = limit.min(u32::MAX as usize) as i64;
            let mut found = log.query(params![after.0.min(i64::MAX as u64) as i64, limit]).map_err(fault)?;
            let mut entries = Vec::new();
            while let Some(row) = found.next().map_err(fault)? {
                let node: String = row.get(1).map_err(fault)?;
                let change: Vec<u8> = row.get(3).map_err(fault)?;
                entries.push(LogEntry {
                    seq: Seq(row.get::<_, i64>(0).map_err(fault)? as u64),
                    node: node
                        .parse()
                        .map_err(|_| StoreError::Damaged(format!("invalid node name {node:?} in the log")))?,
                    at: Time(row.get(2).map_err(fault)?),
                    change: codec::decode("an entry of the log", &change)?,
                });
            }
            Ok(entries)
        })
    }

    fn locate_chunks(&self, chunks: &[ChunkId]) -> Result<Vec<Option<ChunkLocation>>, StoreError> {
        self.read(|db| {
            let mut query = db
                .prepare_cached("SELECT key, place, stored, length FROM chunk WHERE id = ?")
                .map_err(fault)?;
            let location = |row: &rusqlite::Row<'_>| {
                let offset = row.get::<_, i64>(1)? as u64;
                Ok(ChunkLocation { key: row.get(0)?, offset, stored: row.get(2)?, length: row.get(3)? })
            };
            chunks.iter().map(|id| query.query_row([id.0], location).optional().map_err(fault)).collect()
        })
    }

    fn has_chunks(&self, chunks: &[ChunkId]) -> Result<Vec<bool>, StoreError> {
        self.read(|db| {
            let mut query =
                db.prepare_cached("SELECT 1 FROM chunk WHERE id = ? AND gone IS NULL").map_err(fault)?;
            chunks.iter().map(|id| query.exists([id.0]).map_err(fault)).collect()
        })
    }

    fn history(&self) -> Option<&dyn History> {
        Some(self)
    }

    fn wait(&self, after: Seq, at_most: Duration) -> Result<bool, StoreError> {
        let until = Instant::now() + at_most.min(Duration::from_secs(3600));
        let mut guard = self.committed.0.lock();
        loop {
            // Under the lock, so that no commit of this process falls between the check and the sleep.
            if self.head()? > after {
                return Ok(true);
            }
            let now = Instant::now();
            if now >= until {
                return Ok(false);
            }
            self.committed.1.wait_for(&mut guard, (until - now).min(POLL_INTERVAL));
        }
    }

    fn lease(&self, node: &NodeName, request: &LeaseRequest) -> Result<LeaseResponse, StoreError> {
        self.leases.exchange(node, request, (self.clock)(), || self.head())
    }

    fn wait_lease(&self, after: u64, acks: Option<u64>, at_most: Duration) -> Result<bool, StoreError> {
        self.leases.wait(after, acks, at_most)
    }
}
