//! Redo log: the changes since the last commit, in memory that outlives the process.
//!
//! Changes are acknowledged before the committer has written them to the database, up to 20 ms later. A successor that takes
//! over after the process was killed executes the log before it opens the replica, so that no acknowledged change is lost and
//! commits stay as rare as without it. Each change appends the statements that it executed and the inodes that it saved, and
//! becomes valid by a single store. A commit empties the log.
//!
//! The log also records which request of a user made a change, with its result: the kernel sends a request again that was
//! executed but not replied to.
//!
//! | word | meaning |
//! |---|---|
//! | 0 | [`MAGIC`], which includes the version |
//! | 1 | epoch of the log above bit 32, below it the number of valid bytes |
//! | 2 | number of results ever recorded |
//! | from [`RESULTS_AT`] | [`MAX_RESULTS`] results of two words, the oldest are overwritten: request and result |
//! | then | the log: records of a tag, a length and a payload |
//!
//! The database stores the epoch of the last log that was committed: a log of that epoch or an older one is not executed.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{Connection, OptionalExtension as _, params};
use serde::{Deserialize, Serialize};

use super::inode::{Inode, number};
use super::inode_row;

const MAGIC: u64 = u64::from_le_bytes(*b"redo\0\0\0\x01");
const HEAD: usize = 1;
const RESULT_COUNT: usize = 2;
const RESULTS_AT: usize = 8;
/// Results that are kept: more than requests can be in flight.
const MAX_RESULTS: usize = 1 << 16;
const LOG_AT: usize = RESULTS_AT + 2 * MAX_RESULTS;
/// A log that would become longer is committed.
const MAX_LOG_BYTES: usize = 16 << 20;

/// Key of the last committed epoch in the table `meta`.
const EPOCH_KEY: &str = "redo";

/// The memory of a redo log: [`RedoLog::WORDS`] words that keep their values when the process is killed.
pub type RedoMemory = Box<dyn Deref<Target = [AtomicU64]> + Send + Sync>;

/// The redo log of a replica.
pub struct RedoLog {
    memory: RedoMemory,
}

impl fmt::Debug for RedoLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedoLog").field("head", &self.head()).finish_non_exhaustive()
    }
}

/// The memory is not a redo log that this version reads.
#[derive(Debug, thiserror::Error)]
#[error("the redo log of the last daemon has another format")]
pub struct RedoFormatError;

/// A record of the log.
#[derive(Debug, Serialize, Deserialize)]
enum Record {
    Statement(String),
    Inode(inode_row::InodeRow),
    /// Bytes of cached files.
    CachedBytes(u64),
    /// Usage of a user: bytes and objects.
    Usage(u32, u64, u64),
    /// A request and its result.
    Result(u64, u64),
}

/// Records of a change that is not yet in the log, after their length in bytes.
#[derive(Debug)]
pub(super) struct PendingRecords(Vec<u8>);

/// Size of the length in front of the records of a change.
const LENGTH_BYTES: usize = 4;

impl Default for PendingRecords {
    fn default() -> Self {
        Self(vec![0; LENGTH_BYTES])
    }
}

impl PendingRecords {
    fn push(&mut self, record: &Record) {
        // Encoding into memory does not fail.
        self.0 = postcard::to_extend(record, std::mem::take(&mut self.0)).unwrap_or_default();
    }

    pub(super) fn statement(&mut self, sql: String) {
        self.push(&Record::Statement(sql));
    }

    pub(super) fn inode(&mut self, inode: &Inode) {
        self.push(&Record::Inode(inode_row::InodeRow::from(inode)));
    }

    pub(super) fn cached_bytes(&mut self, bytes: u64) {
        self.push(&Record::CachedBytes(bytes));
    }

    pub(super) fn usage(&mut self, user: u32, bytes: u64, objects: u64) {
        self.push(&Record::Usage(user, bytes, objects));
    }

    pub(super) fn result(&mut self, request: u64, result: u64) {
        self.push(&Record::Result(request, result));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
        self.0.resize(LENGTH_BYTES, 0);
    }

    fn is_empty(&self) -> bool {
        self.0.len() <= LENGTH_BYTES
    }
}

impl RedoLog {
    /// Size of its memory in 64-bit words. Most of it is never touched.
    pub const WORDS: usize = LOG_AT + MAX_LOG_BYTES / 8;

    /// Begins an empty log in memory of zeroes.
    ///
    /// # Errors
    /// The memory is too small.
    pub fn create(memory: RedoMemory) -> Result<Self, RedoFormatError> {
        if memory.len() < Self::WORDS {
            return Err(RedoFormatError);
        }
        memory[0].store(MAGIC, Ordering::Relaxed);
        Ok(Self { memory })
    }

    /// Opens the log that another process left. [`Replica::open`](crate::replica::Replica::open) executes it.
    ///
    /// # Errors
    /// It has another format.
    pub fn open(memory: RedoMemory) -> Result<Self, RedoFormatError> {
        if memory.len() < Self::WORDS || memory[0].load(Ordering::Relaxed) != MAGIC {
            return Err(RedoFormatError);
        }
        Ok(Self { memory })
    }

    /// Returns the epoch and the number of valid bytes.
    fn head(&self) -> (u32, usize) {
        let head = self.memory[HEAD].load(Ordering::Acquire);
        ((head >> 32) as u32, (head as u32 as usize).min(MAX_LOG_BYTES))
    }

    fn set_head(&self, epoch: u32, length: usize) {
        self.memory[HEAD].store(u64::from(epoch) << 32 | length as u64, Ordering::Release);
    }

    /// Appends the records of a change, which become valid at once. Returns `false` if there is no room: the change must be
    /// committed.
    pub(super) fn append(&self, records: &mut PendingRecords) -> bool {
        if records.is_empty() {
            return true;
        }
        let (epoch, start) = self.head();
        let length = records.0.len();
        let padded = length.next_multiple_of(8);
        if start + padded > MAX_LOG_BYTES {
            return false;
        }
        records.0[..LENGTH_BYTES].copy_from_slice(&((length - LENGTH_BYTES) as u32).to_le_bytes());
        // Each change begins at a word.
        records.0.resize(padded, 0);
        let words = &self.memory[LOG_AT + start / 8..];
        for (word, bytes) in words.iter().zip(records.0.chunks_exact(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().unwrap_or_default()), Ordering::Relaxed);
        }
        self.set_head(epoch, start + padded);
        records.clear();
        true
    }

    /// Discards the log after a rollback.
    pub(super) fn discard(&self) {
        self.set_head(self.head().0, 0);
    }

    /// Empties the log after the commit of its epoch.
    pub(super) fn committed(&self) {
        self.set_head(self.head().0.wrapping_add(1), 0);
    }

    /// Records, in the transaction that is about to be committed, that it includes this log.
    pub(super) fn record_epoch(&self, db: &Connection) -> rusqlite::Result<()> {
        let mut set = db.prepare_cached("INSERT OR REPLACE INTO meta VALUES (?1, ?2)")?;
        set.execute(params![EPOCH_KEY, self.head().0])?;
        Ok(())
    }

    /// Records the result of a request, after its change was appended or committed.
    pub(super) fn add_result(&self, request: u64, result: u64) {
        let count = self.memory[RESULT_COUNT].load(Ordering::Relaxed);
        let slot = RESULTS_AT + 2 * (count as usize % MAX_RESULTS);
        self.memory[slot].store(0, Ordering::Release);
        self.memory[slot + 1].store(result, Ordering::Release);
        self.memory[slot].store(request, Ordering::Release);
        self.memory[RESULT_COUNT].store(count.wrapping_add(1), Ordering::Release);
    }

    fn bytes(&self, length: usize) -> Vec<u8> {
        let words = &self.memory[LOG_AT..LOG_AT + length.div_ceil(8)];
        let mut bytes: Vec<u8> =
            words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        bytes.truncate(length);
        bytes
    }

    /// Executes what an earlier process left uncommitted. Returns the results of its requests.
    ///
    /// # Errors
    /// The database cannot be written, or the log is damaged.
    pub(crate) fn replay(&self, db: &Connection) -> rusqlite::Result<HashMap<u64, u64>> {
        let mut results = HashMap::new();
        for slot in 0..MAX_RESULTS {
            let request = self.memory[RESULTS_AT + 2 * slot].load(Ordering::Acquire);
            if request != 0 {
                results.insert(request, self.memory[RESULTS_AT + 2 * slot + 1].load(Ordering::Relaxed));
            }
        }
        let query = "SELECT value FROM meta WHERE key = ?1";
        let committed: Option<i64> = db.query_row(query, [EPOCH_KEY], |row| row.get(0)).optional()?;
        let committed = committed.map_or(0, number) as u32;
        let (epoch, length) = self.head();
        let records = decode(&self.bytes(length));
        if epoch > committed && !records.is_empty() {
            db.execute_batch("BEGIN IMMEDIATE")?;
            for record in &records {
                execute(db, record)?;
            }
            self.record_epoch(db)?;
            db.execute_batch("COMMIT")?;
        }
        for record in records {
            if let Record::Result(request, result) = record
                && results.insert(request, result).is_none()
            {
                self.add_result(request, result);
            }
        }
        self.set_head(epoch.max(committed).wrapping_add(1), 0);
        Ok(results)
    }
}

/// Decodes records until the first change that is damaged.
fn decode(mut bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some(change) = rest.get(..length).and_then(decode_change) else {
            tracing::error!(
                "the redo log of the last daemon is damaged: changes of its last moment are lost"
            );
            break;
        };
        records.extend(change);
        bytes = bytes.get((LENGTH_BYTES + length).next_multiple_of(8)..).unwrap_or_default();
    }
    records
}

fn decode_change(mut bytes: &[u8]) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (record, rest) = postcard::take_from_bytes(bytes).ok()?;
        records.push(record);
        bytes = rest;
    }
    Some(records)
}

fn execute(db: &Connection, record: &Record) -> rusqlite::Result<()> {
    match record {
        Record::Statement(sql) => db.execute_batch(sql)?,
        Record::Inode(row) => inode_row::upsert(&mut db.prepare_cached(inode_row::UPSERT)?, row)?,
        Record::CachedBytes(bytes) => {
            db.prepare_cached("INSERT OR REPLACE INTO meta VALUES ('here', ?1)")?.execute([*bytes as i64])?;
        }
        Record::Usage(user, _, 0) => {
            db.prepare_cached("DELETE FROM usage WHERE owner = ?1")?.execute([user])?;
        }
        Record::Usage(user, bytes, objects) => {
            db.prepare_cached("INSERT OR REPLACE INTO usage VALUES (?1, ?2, ?3)")?.execute(params![
                user,
                *bytes as i64,
                *objects as i64
            ])?;
        }
        Record::Result(..) => {}
    }
    Ok(())
}

#[cfg(test)]
#[path = "redo_tests.rs"]
mod tests;
