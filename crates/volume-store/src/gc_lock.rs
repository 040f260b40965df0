//! The lock of the garbage collector, and the calls that its fencing token guards. A collector that lost the lock, for example
//! because its machine was suspended, can no longer change locations of chunks.

use shunt_volume_types::object::ChunkId;

use crate::{ChunkLocation, MetaStore, StoreError};

/// A chunk that was copied to another pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedChunk {
    /// The chunk.
    pub id: ChunkId,
    /// Its old location.
    pub from: ChunkLocation,
    /// Its new location.
    pub to: ChunkLocation,
}

/// Setting with the fencing token of the garbage collector's lock.
pub(crate) const GC_LOCK_SETTING: &str = "gc.turn";
/// Setting that counts how often chunks were moved.
pub const MOVES_SETTING: &str = "gc.moves";

/// The part of a store that only the current collector may change.
pub trait GcLock: MetaStore {
    /// Acquires the lock of the garbage collector from any holder and returns its fencing token: fenced calls of earlier
    /// holders do nothing from now on. So data that only fenced calls change stays as it is read from here on.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn acquire_gc_lock(&self) -> Result<u64, StoreError>;

    /// Updates the locations of chunks that are still at `from`; a mark stays. Returns how many were updated; `None`, and
    /// nothing is done, if `token` is no longer the current fencing token.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn move_chunks(&self, token: u64, moved: &[MovedChunk]) -> Result<Option<u64>, StoreError>;

    /// Writes or removes settings together. Returns `false`, and does nothing, if `token` is no longer the current fencing
    /// token.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn set_fenced(&self, token: u64, settings: &[(String, Option<String>)]) -> Result<bool, StoreError>;
}
