//! The metadata store: the objects, names, chunk locations and commit log of a volume, on which all nodes agree.
//!
//! A [`MetaStore`] orders the changes of a volume: each accepted [`Transaction`] is one entry of a log without gaps. All
//! engines (SQLite, PostgreSQL, a gateway's client) behave alike; one suite of tests runs on each.

pub mod admin;
pub mod codec;
pub mod descriptor_format;
mod encrypted;
pub mod gc_lock;
pub mod history;
pub mod lazy;
pub mod lease_table;
pub mod log_verifier;
mod metadata_cipher;
mod penalties;
pub mod postgres;
mod preconditions;
pub mod proof;
pub mod seal;
pub mod sqlite;
mod transaction;
pub mod validate;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub use encrypted::EncryptedStore;
pub use lease_table::{LeaseEvent, LeaseRequest, LeaseResponse};
pub use metadata_cipher::MetadataCipher;
pub use postgres::PostgresStore;
pub use sqlite::SqliteStore;

use shunt_volume_types::id::{NodeName, ObjectId, OwnerId, Seq, VolumeName};
use shunt_volume_types::object::{
    ChunkId, Content, Field, LinkName, Object, StoredLink, Time, VersionedObject,
};

/// A condition that must still hold for a transaction to be accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Precondition {
    /// The object exists.
    Exists(ObjectId),
    /// The field was last set by this commit.
    Field(ObjectId, Field, Seq),
    /// The name has led to this object since this commit; `None`: the name does not exist.
    Link(LinkName, Option<(ObjectId, Seq)>),
    /// The directory has no entries.
    Empty(ObjectId),
}

/// One change within a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mutation {
    /// Creates an object, which has no name yet.
    Make(Object),
    /// Sets the content of a regular file and its modification time.
    SetContent(ObjectId, Content, Time),
    /// Sets the permission bits.
    SetMode(ObjectId, u16),
    /// Sets the owning user.
    SetOwner(ObjectId, OwnerId),
    /// Sets the owning group.
    SetGroup(ObjectId, OwnerId),
    /// Sets the modification time.
    SetModified(ObjectId, Time),
    /// Sets an extended attribute; `None` removes it.
    SetXattr(ObjectId, Vec<u8>, Option<Vec<u8>>),
    /// Adds a name that did not exist. A directory has only one: to move it, remove the old name first.
    Link(LinkName, ObjectId),
    /// Removes a name. An object without names is deleted at the end of its transaction.
    Unlink(LinkName),
    /// Changes nothing: proves the mutations before it, in a volume whose log is [sealed](seal).
    Seal(seal::Seal),
}

impl Mutation {
    /// Returns the object whose field it sets; `None` if it creates an object or changes a name.
    pub fn sets(&self) -> Option<ObjectId> {
        match self {
            Self::SetContent(id, ..)
            | Self::SetMode(id, _)
            | Self::SetOwner(id, _)
            | Self::SetGroup(id, _)
            | Self::SetModified(id, _)
            | Self::SetXattr(id, ..) => Some(*id),
            Self::Make(_) | Self::Link(..) | Self::Unlink(_) | Self::Seal(_) => None,
        }
    }
}

/// Changes that are committed together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Transaction {
    /// All of them must hold.
    pub preconditions: Vec<Precondition>,
    /// Applied in this order.
    pub mutations: Vec<Mutation>,
    /// Locations of chunks that the changes reference and that the store may not know yet. The store records them even if it
    /// rejects the transaction: the chunks are stored, and the resolution of the conflict will reference them.
    pub chunks: Vec<(ChunkId, ChunkLocation)>,
}

/// The location of a chunk's bytes in the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkLocation {
    /// Key of the object that contains it, possibly together with other chunks.
    pub key: String,
    /// Offset within the object, in bytes.
    pub offset: u64,
    /// Stored length in bytes: compressed and encrypted.
    pub stored: u32,
    /// Length of the plain content in bytes.
    pub length: u32,
}

/// The reason why a transaction was not accepted. None of its changes was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Rejected {
    /// A precondition does not hold: its index in [`Transaction::preconditions`].
    #[error("precondition {0} does not hold: the store has changed")]
    Stale(u32),
    /// A directory would be below itself.
    #[error("a directory would become its own descendant")]
    Cycle,
    /// A mutation that is invalid in the current state of the store: its index in [`Transaction::mutations`], and the reason.
    #[error("mutation {0} of the transaction is invalid: {1}")]
    Invalid(u32, String),
}

/// A committed transaction, as an entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Sequence number of the commit.
    pub seq: Seq,
    /// The node that committed it.
    pub node: NodeName,
    /// Commit time, by the clock of the store.
    pub at: Time,
    /// The mutations, in the order in which they were applied.
    pub change: Vec<Mutation>,
}

/// An error of a metadata store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached. An expected condition: the node continues offline.
    #[error("the metadata store cannot be reached: {0}")]
    Unreachable(String),
    /// No volume has this name.
    #[error("volume {0} does not exist")]
    NoVolume(VolumeName),
    /// A volume of this name exists already.
    #[error("volume {0} exists already")]
    Exists(VolumeName),
    /// The store was created by a newer version, or is not a store.
    #[error("the store has format {found}, this version supports up to {known}: {advice}")]
    Format {
        /// The format found.
        found: String,
        /// The newest format that this version knows.
        known: u32,
        /// The remedy.
        advice: &'static str,
    },
    /// The store contains data that cannot be decoded or is inconsistent.
    #[error("invalid data from the metadata store: {0}")]
    Damaged(String),
    /// The data was not made with the key of the volume: the store, or a client with write access to it, changed it.
    #[error(
        "the store was tampered with: {0}; its changes are rejected, and this node keeps its \
            replica: restore an intact copy \
         of the store"
    )]
    Tampered(String),
    /// This node lacks the permission; one line.
    #[error("{0}")]
    Denied(String),
    /// This node lacks the role of a gateway; one line.
    #[error("{0}")]
    NotGateway(String),
    /// The log was truncated beyond this entry: read the whole tree again.
    #[error("the log was truncated: entries after commit {0} are missing")]
    Forgotten(Seq),
}

/// One page of a scan of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Page {
    /// Objects in order of their ids.
    pub objects: Vec<VersionedObject>,
    /// All names in the directories among them.
    pub links: Vec<StoredLink>,
    /// First id of the next page; `None` on the last one.
    pub next: Option<ObjectId>,
}

/// Source of commit times.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// Returns the clock of the machine.
pub fn system_clock() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time(since.as_nanos().min(i64::MAX as u128) as i64)
    })
}

/// Number of batches whose answers a store keeps, so that [`MetaStore::commit`] is idempotent for their tokens.
pub const MAX_KEPT_RESULTS: usize = 4096;

/// Identifies a gateway. Gateways that share a registry count as one.
pub type GatewayId = [u8; 16];

/// The metadata of one volume.
///
/// Calls block. A caller retries only after [`StoreError::Unreachable`].
pub trait MetaStore: Send + Sync {
    /// Returns the last commit.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn head(&self) -> Result<Seq, StoreError>;

    /// Commits transactions one after the other, each by itself, in one database transaction: all accepted ones are durable
    /// when this returns, and no commit of another node is between them. After [`StoreError::Unreachable`] the outcome is
    /// unknown; a retry with the same `token` returns the first answer and changes nothing, within the last [`MAX_KEPT_RESULTS`]
    /// batches.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine; the outcome of the batch is then unknown.
    fn commit(
        &self,
        node: &NodeName,
        token: u128,
        items: &[Transaction],
    ) -> Result<Vec<Result<Seq, Rejected>>, StoreError>;

    /// Returns the gateways on the path to the store, the nearest first; `None` if the nearest one does not know.
    ///
    /// # Errors
    /// [`StoreError::NotGateway`] if the caller is not a gateway; any other [`StoreError`] of the engine.
    fn gateway_path(&self) -> Result<Option<Vec<GatewayId>>, StoreError> {
        Ok(Some(Vec::new()))
    }

    /// Returns why this node is read-only, as far as that is known without a request; `None`: it may write, or the first commit will
    /// show it.
    fn only_reads(&self) -> Option<String> {
        None
    }

    /// Returns the current state of objects, in the order of `ids`.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn get(&self, ids: &[ObjectId]) -> Result<Vec<Option<VersionedObject>>, StoreError>;

    /// Scans the tree from an id on, at most `limit` objects at a time. It may change between pages: read the
    /// [`head`](Self::head) first, and apply the log from there afterwards.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn scan(&self, from: ObjectId, limit: usize) -> Result<Page, StoreError>;

    /// Returns at most `limit` log entries after `after`.
    ///
    /// # Errors
    /// [`StoreError::Forgotten`]; any other [`StoreError`] of the engine.
    fn log_since(&self, after: Seq, limit: usize) -> Result<Vec<LogEntry>, StoreError>;

    /// Reads the log as [`log_since`](Self::log_since), but may return a prefix where the rest exceeds one message; the flag is
    /// `true` if the answer is not cut short.
    ///
    /// # Errors
    /// As for [`log_since`](Self::log_since).
    fn log_part(&self, after: Seq, limit: usize) -> Result<(Vec<LogEntry>, bool), StoreError> {
        Ok((self.log_since(after, limit)?, true))
    }

    /// Locates chunks, in the order of `chunks`.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn locate_chunks(&self, chunks: &[ChunkId]) -> Result<Vec<Option<ChunkLocation>>, StoreError>;

    /// Reports for each chunk whether it may be referenced without an upload, in the order of `chunks`. A chunk that is marked
    /// for deletion may still have a [location](Self::locate_chunks) and soon lose it.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn has_chunks(&self, chunks: &[ChunkId]) -> Result<Vec<bool>, StoreError> {
        Ok(self.locate_chunks(chunks)?.iter().map(Option::is_some).collect())
    }

    /// Returns the log as it is stored, if it is [sealed](seal) and this node has the key; otherwise `None`.
    fn sealed_log(&self) -> Option<&dyn SealedLog> {
        None
    }

    /// Returns the interface to past versions; `None` if the store has none.
    fn history(&self) -> Option<&dyn history::History> {
        None
    }

    /// Waits until the log may have entries after `after`, at most for `at_most`. Only a hint: both spurious and missed
    /// wake-ups occur.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn wait(&self, after: Seq, at_most: std::time::Duration) -> Result<bool, StoreError>;

    /// Performs one [lease](lease_table) request of a node and returns the state of other nodes' leases.
    ///
    /// # Errors
    /// [`StoreError::Denied`] if the store has no leases or too many nodes hold some; any other [`StoreError`] of the engine.
    fn lease(&self, node: &NodeName, request: &LeaseRequest) -> Result<LeaseResponse, StoreError> {
        let _ = (node, request);
        Err(StoreError::Denied("this store does not support leases".to_owned()))
    }

    /// Waits until the lease table may have changed after [`after`](LeaseResponse::at), or, with `acks`, until a node has
    /// [acknowledged](LeaseResponse::acks) more events; at most for `at_most`. A hint, like [`wait`](Self::wait).
    ///
    /// # Errors
    /// As for [`lease`](Self::lease).
    fn wait_lease(
        &self,
        after: u64,
        acks: Option<u64>,
        at_most: std::time::Duration,
    ) -> Result<bool, StoreError> {
        let _ = (after, acks, at_most);
        Err(StoreError::Denied("this store does not support leases".to_owned()))
    }
}

/// Raw access to a sealed log, for a node that [verifies](log_verifier) it.
pub trait SealedLog {
    /// Returns the verifier of its entries.
    fn sealer(&self) -> &seal::Sealer;

    /// Returns at most `limit` entries after `after`, as they are stored.
    ///
    /// # Errors
    /// As [`MetaStore::log_since`]; [`StoreError::Tampered`] where the log does not reach back that far.
    fn stored_since(&self, after: Seq, limit: usize) -> Result<Vec<LogEntry>, StoreError>;

    /// Decrypts an entry.
    fn decrypt_entry(&self, entry: LogEntry) -> LogEntry;
}
