//! Administrative access to a metadata store, for fsck, repair and garbage collection. Gateways do not offer it.

use std::collections::HashMap;

use shunt_volume_types::id::{ObjectId, Seq};
use shunt_volume_types::object::{ChunkId, Time, VersionedObject};

use crate::gc_lock::GcLock;
use crate::transaction::Row;
use crate::{ChunkLocation, StoreError};

/// An object, with the bookkeeping that a store keeps for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRecord {
    /// The part that nodes see.
    pub stored: VersionedObject,
    /// The parent of a directory.
    pub parent: Option<ObjectId>,
    /// Number of entries in a directory.
    pub names: u64,
}

impl From<Row> for ObjectRecord {
    fn from(Row { stored, parent, names }: Row) -> Self {
        Self { stored, parent, names }
    }
}

/// A chunk that a store knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its location.
    pub location: ChunkLocation,
    /// Time at which it was marked for deletion. From then on `has_chunks` does not report it.
    pub marked_at: Option<Time>,
}

/// The administrative half of a store.
///
/// Deletion of chunks has two phases. An unreferenced chunk is first marked: it can still be read, but [`has_chunks`](crate::MetaStore::has_chunks) no
/// longer reports it. A node to which it was reported earlier has the grace period to commit its reference; then the chunk is
/// deleted, if it is still unreferenced.
pub trait StoreAdmin: GcLock {
    /// Scans objects in order of their ids; returns them and the first id of the next page.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn scan_records(
        &self,
        from: ObjectId,
        limit: usize,
    ) -> Result<(Vec<ObjectRecord>, Option<ObjectId>), StoreError>;

    /// Scans chunks after `after`, in order of their ids; all zeros: from the first.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn scan_chunks(&self, after: ChunkId, limit: usize) -> Result<Vec<(ChunkId, Chunk)>, StoreError>;

    /// Marks for deletion the chunks that are not marked yet.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn mark_for_deletion(&self, chunks: &[ChunkId], at: Time) -> Result<(), StoreError>;

    /// Removes the marks.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn unmark(&self, chunks: &[ChunkId]) -> Result<(), StoreError>;

    /// Deletes the chunks that were marked at `marked_before` or before and still are.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn drop_chunks(&self, chunks: &[ChunkId], marked_before: Time) -> Result<(), StoreError>;

    /// Returns the settings whose keys begin with `prefix`.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn settings(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError>;

    /// Returns the last entry that was truncated from the log; 0: the log is complete.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn truncated_up_to(&self) -> Result<Seq, StoreError>;

    /// Truncates the log: entries before a time, except the last `min_entries`. Returns the last truncated entry. A node that has not
    /// read that far reads the whole tree instead.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn truncate_log(&self, before: Time, min_entries: u64) -> Result<Seq, StoreError>;

    /// Scans versions of deleted objects and superseded versions, after one: each with the commit that ended it.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn scan_past(
        &self,
        after: (ObjectId, Seq),
        limit: usize,
    ) -> Result<Vec<(VersionedObject, Seq)>, StoreError>;

    /// Deletes history that a commit up to `up_to` superseded, and all but the latest `versions` versions of each object.
    /// Returns the number of versions and names deleted.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn delete_history(&self, up_to: Seq, versions: Option<u32>) -> Result<u64, StoreError>;

    /// Returns a setting of the volume.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn setting(&self, key: &str) -> Result<Option<String>, StoreError>;

    /// Writes a setting.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn set_setting(&self, key: &str, value: &str) -> Result<(), StoreError>;

    /// Returns the time at the metadata store; `None` for an engine that uses the clock of this machine.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn now(&self) -> Result<Option<Time>, StoreError> {
        Ok(None)
    }

    /// Replaces the counts of names of objects and of entries in directories; does nothing and returns `false` if there was a
    /// commit after `at`.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn repair_counts(&self, at: Seq, counts: &HashMap<ObjectId, (u32, u64)>) -> Result<bool, StoreError>;

    /// Replaces the descriptor of the volume; does nothing and returns `false` if there was a commit after `at`.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn replace_descriptor(&self, at: Seq, descriptor: &[u8]) -> Result<bool, StoreError>;
}
