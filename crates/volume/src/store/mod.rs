//! What all nodes agree on.
//!
//! A [`MetaStore`] orders the changes of a volume: each accepted [`Transaction`] is one entry of a log without gaps. All
//! engines behave alike; one suite of tests runs on each.

pub mod admin;
pub(crate) mod codec;
pub(crate) mod descriptor_format;
mod encrypted;
pub mod history;
pub(crate) mod lazy;
pub mod lease_table;
pub mod ledger;
mod metadata_cipher;
mod penalties;
pub(crate) mod postgres;
pub(crate) mod proof;
pub mod seal;
pub(crate) mod sqlite;
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

use crate::id::{NodeName, ObjectId, OwnerId, Seq, VolumeName};
use crate::object::{ChunkId, Content, Field, LinkName, Object, StoredLink, Time, VersionedObject};

/// What has to be so still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Precondition {
    /// The object is there.
    Exists(ObjectId),
    /// It was last set by this commit.
    Field(ObjectId, Field, Seq),
    /// The name leads there since this commit; `None`: there is no such name.
    Link(LinkName, Option<(ObjectId, Seq)>),
    /// A directory without names.
    Empty(ObjectId),
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mutation {
    /// A new object, without a name as yet.
    Make(Object),
    /// New content of a regular file, and when it was modified.
    SetContent(ObjectId, Content, Time),
    /// Permission bits.
    SetMode(ObjectId, u16),
    /// The user.
    SetOwner(ObjectId, OwnerId),
    /// The group.
    SetGroup(ObjectId, OwnerId),
    /// The time of modification.
    SetModified(ObjectId, Time),
    /// An extended attribute; `None` removes it.
    SetXattr(ObjectId, Vec<u8>, Option<Vec<u8>>),
    /// A name that was not there. A directory has one: to move it, take the old one away first.
    Link(LinkName, ObjectId),
    /// A name that is not there any more. An object without names is gone at the end of its item.
    Unlink(LinkName),
    /// Changes nothing: proves those before it, of a volume whose log is [sealed](seal).
    Seal(seal::Seal),
}

impl Mutation {
    /// The object of which it sets a part; `None`: it makes one, or is about a name.
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

/// Changes that are made together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Transaction {
    /// What has to be so still.
    pub preconditions: Vec<Precondition>,
    /// In this order.
    pub mutations: Vec<Mutation>,
    /// Chunks that the changes speak of and that the store may not know yet. They are known from then on even where the
    /// item is refused: they are there, and what comes of the conflict will want them.
    pub chunks: Vec<(ChunkId, ChunkLocation)>,
}

/// Where the bytes of a chunk are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkLocation {
    /// The key of the object that holds it, among others perhaps.
    pub key: String,
    /// From this byte on.
    pub offset: u64,
    /// So many bytes as they are stored: compressed, encrypted.
    pub stored: u32,
    /// So many bytes once they are not.
    pub length: u32,
}

/// Why an item was not accepted. None of its changes was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Rejected {
    /// A precondition does not hold: its place in [`Transaction::preconditions`].
    #[error("what it was based on has changed (condition {0})")]
    Stale(u32),
    /// A directory would be below itself.
    #[error("a directory would be below itself")]
    Cycle,
    /// A mutations that makes no sense where the store is now: its place in [`Transaction::mutations`], and why.
    #[error("change {0} cannot be made: {1}")]
    Invalid(u32, String),
}

/// A change that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Its place.
    pub seq: Seq,
    /// Who made it.
    pub node: NodeName,
    /// When, by the clock of the store.
    pub at: Time,
    /// In this order.
    pub change: Vec<Mutation>,
}

/// What is wrong with a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached. Not an error of anybody: the node goes on without.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// There is no such volume.
    #[error("there is no volume {0}")]
    NoVolume(VolumeName),
    /// There is one already.
    #[error("there is a volume {0} already")]
    Exists(VolumeName),
    /// It was made by a newer version, or is not a store.
    #[error("the store has format {found}, and this version knows {known}: {advice}")]
    Format {
        /// What it has.
        found: String,
        /// What is known.
        known: u32,
        /// What to do.
        advice: &'static str,
    },
    /// It holds what makes no sense.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// What it holds was not made with the key of the volume: the store, or who writes to it, changed it.
    #[error(
        "the store was tampered with: {0}. Nothing of it is taken. Put back a copy of the store that is intact; this machine \
         keeps what it has"
    )]
    Tampered(String),
    /// This node may not do that; one line.
    #[error("{0}")]
    Denied(String),
    /// The log no longer begins so early: read the whole tree again.
    #[error("the log no longer holds what came after {0}")]
    Forgotten(Seq),
}

/// A page of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Page {
    /// Objects in order of their ids.
    pub objects: Vec<VersionedObject>,
    /// All names of the directories among them.
    pub links: Vec<StoredLink>,
    /// Where to go on; `None`: that was all.
    pub next: Option<ObjectId>,
}

/// Tells the time of commits.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// That of the machine.
pub fn system_clock() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time(since.as_nanos().min(i64::MAX as u128) as i64)
    })
}

/// Answers to batches that a store remembers, for [`MetaStore::commit`] to give again: those of the last so many batches.
pub const ANSWERS_KEPT: usize = 4096;

/// Tells gateways apart: those that share a book are one.
pub type GatewayId = [u8; 16];

/// The metadata of volumes.
///
/// Calls block. None is retried by the caller for another reason than [`StoreError::Unreachable`].
pub trait MetaStore: Send + Sync {
    /// The last commit.
    ///
    /// # Errors
    /// Those of the store.
    fn head(&self) -> Result<Seq, StoreError>;

    /// Commits items one after the other, each by itself, in one transaction: all that hold are durable when this returns, and
    /// nobody else's commit is between them.
    /// Whether a batch that was answered by [`StoreError::Unreachable`] was committed is told by its `token`: the same
    /// token again gives the same answer and changes nothing, within the last [`ANSWERS_KEPT`] batches.
    ///
    /// # Errors
    /// Those of the store; then nothing is known of the batch.
    fn commit(
        &self,
        node: &NodeName,
        token: u128,
        items: &[Transaction],
    ) -> Result<Vec<Result<Seq, Rejected>>, StoreError>;

    /// By way of which gateways this is, the next one first; `None`: that one does not know.
    ///
    /// # Errors
    /// Those of the store; [`StoreError::Denied`] where who asks is no gateway.
    fn way(&self) -> Result<Option<Vec<GatewayId>>, StoreError> {
        Ok(Some(Vec::new()))
    }

    /// Why this node may change nothing, as far as that is known without asking; `None`: it may, or finds out.
    fn only_reads(&self) -> Option<String> {
        None
    }

    /// Objects, as they are now, in the order asked for.
    ///
    /// # Errors
    /// Those of the store.
    fn get(&self, ids: &[ObjectId]) -> Result<Vec<Option<VersionedObject>>, StoreError>;

    /// The whole tree, from an id on; at most so many objects. It may change between pages: begin with the
    /// [`head`](Self::head), and go on with the log from there.
    ///
    /// # Errors
    /// Those of the store.
    fn scan(&self, from: ObjectId, most: usize) -> Result<Page, StoreError>;

    /// What was committed after a place, at most so many entries.
    ///
    /// # Errors
    /// [`StoreError::Forgotten`]; those of the store.
    fn log_since(&self, after: Seq, most: usize) -> Result<Vec<LogEntry>, StoreError>;

    /// The same, or a first part of it where more is too long for one message; whether it is not a part.
    ///
    /// # Errors
    /// As [`log_since`](Self::log_since).
    fn log_part(&self, after: Seq, most: usize) -> Result<(Vec<LogEntry>, bool), StoreError> {
        Ok((self.log_since(after, most)?, true))
    }

    /// Where chunks are, in the order asked for.
    ///
    /// # Errors
    /// Those of the store.
    fn places(&self, chunks: &[ChunkId]) -> Result<Vec<Option<ChunkLocation>>, StoreError>;

    /// Whether chunks are there to be spoken of, in the order asked for: those need not be sent again. A chunk may have a
    /// [place](Self::places) and soon lose it.
    ///
    /// # Errors
    /// Those of the store.
    fn known(&self, chunks: &[ChunkId]) -> Result<Vec<bool>, StoreError> {
        Ok(self.places(chunks)?.iter().map(Option::is_some).collect())
    }

    /// The log as it is stored, of a volume whose log is [sealed](seal); `None`: it is not, or its key is not here.
    fn sealed_log(&self) -> Option<&dyn SealedLog> {
        None
    }

    /// The side that looks back; `None`: there is none.
    fn history(&self) -> Option<&dyn history::History> {
        None
    }

    /// Waits until there may be something after a place, or for so long. A hint: it may say yes for nothing, and may miss
    /// what happens.
    ///
    /// # Errors
    /// Those of the store.
    fn wait(&self, after: Seq, at_most: std::time::Duration) -> Result<bool, StoreError>;

    /// Says something of [leases](lease_table), and hears of those of others.
    ///
    /// # Errors
    /// [`StoreError::Denied`] where there are none, or too many nodes; those of the store.
    fn lease(&self, node: &NodeName, ask: &LeaseRequest) -> Result<LeaseResponse, StoreError> {
        let _ = (node, ask);
        Err(StoreError::Denied("this store has no leases".to_owned()))
    }

    /// Waits until there may be something to hear of after [a place](LeaseResponse::at), or, where somebody waits for that,
    /// somebody has [seen](LeaseResponse::acks) something; or for so long. A hint, as [`wait`](Self::wait) is.
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
        Err(StoreError::Denied("this store has no leases".to_owned()))
    }
}

/// A sealed log, for who [follows](ledger) it.
pub trait SealedLog {
    /// Verifies its entries.
    fn sealer(&self) -> &seal::Sealer;

    /// What was committed after a place, at most so many entries, as they are stored.
    ///
    /// # Errors
    /// As [`MetaStore::log_since`]; [`StoreError::Tampered`] where it does not go back so far.
    fn stored_since(&self, after: Seq, most: usize) -> Result<Vec<LogEntry>, StoreError>;

    /// An entry as who has the key sees it.
    fn shown(&self, entry: LogEntry) -> LogEntry;
}
