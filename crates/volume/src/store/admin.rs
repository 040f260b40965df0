//! What only who looks after a volume does: checking it, and freeing what nothing speaks of any more.

use std::collections::HashMap;

use crate::id::{ObjectId, Seq};
use crate::object::{ChunkId, Time, VersionedObject};
use crate::store::transaction::Row;
use crate::store::{ChunkLocation, MetaStore, StoreError};

/// An object, with what a store keeps beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRecord {
    /// What everybody sees.
    pub stored: VersionedObject,
    /// Where a directory is.
    pub parent: Option<ObjectId>,
    /// How many names a directory holds.
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
    /// Where it is.
    pub place: ChunkLocation,
    /// Since when it is not offered any more to who wants to send the same.
    pub condemned: Option<Time>,
}

/// A chunk that lies in another pack from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Which one.
    pub id: ChunkId,
    /// Where it was.
    pub from: ChunkLocation,
    /// Where it is.
    pub to: ChunkLocation,
}

/// The setting that counts turns.
pub(in crate::store) const TURN: &str = "gc.turn";
/// The setting that counts how often chunks were moved.
pub(crate) const MOVES: &str = "gc.moves";

/// The side of a store that its keeper sees.
///
/// A chunk that nothing speaks of is first condemned: it can be read, but [`MetaStore::known`] no longer tells of it. Who
/// sent a change that speaks of it, being told before, has as long as the grace lasts; then it is dropped, if still nothing
/// speaks of it.
pub trait StoreAdmin: MetaStore {
    /// Objects in order of their ids, and where to go on.
    ///
    /// # Errors
    /// Those of the store.
    fn scan_kept(
        &self,
        from: ObjectId,
        most: usize,
    ) -> Result<(Vec<ObjectRecord>, Option<ObjectId>), StoreError>;

    /// Chunks after one, in order of their ids; all zeros: from the first.
    ///
    /// # Errors
    /// Those of the store.
    fn scan_chunks(&self, after: ChunkId, most: usize) -> Result<Vec<(ChunkId, Chunk)>, StoreError>;

    /// Condemns those that are not yet.
    ///
    /// # Errors
    /// Those of the store.
    fn mark_for_deletion(&self, chunks: &[ChunkId], at: Time) -> Result<(), StoreError>;

    /// Takes that back.
    ///
    /// # Errors
    /// Those of the store.
    fn unmark(&self, chunks: &[ChunkId]) -> Result<(), StoreError>;

    /// Drops those that were condemned by then, and are still.
    ///
    /// # Errors
    /// Those of the store.
    fn drop_chunks(&self, chunks: &[ChunkId], condemned: Time) -> Result<(), StoreError>;

    /// Takes the turn from whoever looks after the volume as well: those before do no more of what is only done in turn. So
    /// what is read then holds, as far as only this changes it.
    ///
    /// # Errors
    /// Those of the store.
    fn acquire_gc_lock(&self) -> Result<u64, StoreError>;

    /// Moves those that are still where they were; one that is condemned stays it. How many that were; `None`, and nothing
    /// is done, where another one has the turn.
    ///
    /// # Errors
    /// Those of the store.
    fn move_chunks(&self, turn: u64, moved: &[Moved]) -> Result<Option<u64>, StoreError>;

    /// Makes settings, or removes them, together. `false`, and nothing is done, where another one has the turn.
    ///
    /// # Errors
    /// Those of the store.
    fn set_fenced(&self, turn: u64, settings: &[(String, Option<String>)]) -> Result<bool, StoreError>;

    /// Settings whose keys begin so.
    ///
    /// # Errors
    /// Those of the store.
    fn settings(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError>;

    /// Up to where the log is not there any more; 0: it is whole.
    ///
    /// # Errors
    /// Those of the store.
    fn forgotten(&self) -> Result<Seq, StoreError>;

    /// Drops from the beginning of the log what was committed before a time, but none of the last `least` entries. Up to
    /// where it is not there then. A node that has not read it yet reads the whole tree instead.
    ///
    /// # Errors
    /// Those of the store.
    fn forget(&self, before: Time, least: u64) -> Result<Seq, StoreError>;

    /// Versions of objects that are no more, after one: its object and the commit that ended it.
    ///
    /// # Errors
    /// Those of the store.
    fn scan_past(
        &self,
        after: (ObjectId, Seq),
        most: usize,
    ) -> Result<Vec<(VersionedObject, Seq)>, StoreError>;

    /// Forgets what was superseded by a commit up to one, and versions of an object but for the latest so many. How many
    /// versions and names that were.
    ///
    /// # Errors
    /// Those of the store.
    fn trim(&self, up_to: Seq, versions: Option<u32>) -> Result<u64, StoreError>;

    /// A setting of the volume.
    ///
    /// # Errors
    /// Those of the store.
    fn setting(&self, key: &str) -> Result<Option<String>, StoreError>;

    /// Makes a setting.
    ///
    /// # Errors
    /// Those of the store.
    fn set_setting(&self, key: &str, value: &str) -> Result<(), StoreError>;

    /// What time it is where the metadata are; nothing of those that go by the clock of this machine.
    ///
    /// # Errors
    /// Those of the store.
    fn now(&self) -> Result<Option<Time>, StoreError> {
        Ok(None)
    }

    /// Writes down how many names lead to objects, and how many they hold; unless there was a commit after `at`: then nothing is done, and `false` the answer.
    ///
    /// # Errors
    /// Those of the store.
    fn mend(&self, at: Seq, counts: &HashMap<ObjectId, (u32, u64)>) -> Result<bool, StoreError>;

    /// Replaces the description of the volume; unless there was a commit after `at`: then nothing is done, and `false` the
    /// answer.
    ///
    /// # Errors
    /// Those of the store.
    fn redescribe(&self, at: Seq, description: &[u8]) -> Result<bool, StoreError>;
}
