//! The interface of synchronisation to a replica, and the state that a replica stores for it.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::id::{ObjectId, Seq};
use crate::merge::{DentryKey, DirtySet, FileUpload, Ino, Plan, PlanError, Trees};
use crate::object::{ChunkId, Object, Time};
use crate::store::log_verifier::VerifiedPosition;
use crate::store::{ChunkLocation, LogEntry, Precondition, StoreError, Transaction, codec};

/// A batch of commits sent to the store. The replica stores it until the log shows whether each commit was accepted (a
/// transactional outbox).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outbox {
    /// Identifies the batch to the store, for repeated attempts.
    pub token: u128,
    /// The commits, in order.
    pub items: Vec<Transaction>,
    /// The last accepted commit, 0 if none was; `None` if there was no reply yet.
    pub answered: Option<Seq>,
    /// When the check or upload of the referenced contents began, by the clock of the replica. `None` if unknown.
    pub begun: Option<Time>,
}

impl Outbox {
    /// Decodes the format of [`encode`](Self::encode), or an older one without the time.
    ///
    /// # Errors
    /// Returns an error if the bytes are in neither format.
    pub fn decode(bytes: &[u8]) -> Result<Self, postcard::Error> {
        postcard::from_bytes(bytes).or_else(|_| {
            let (token, items, answered) = postcard::from_bytes(bytes)?;
            Ok(Self { token, items, answered, begun: None })
        })
    }

    /// Encodes the outbox for the replica. The time comes last: older versions read only what is before it.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Returns the commits that the store may have and that are behind `cursor` in the log. The accepted commits of a batch
    /// are consecutive in the log.
    pub(crate) fn entries_after(mut self, cursor: Seq) -> Vec<Transaction> {
        if let Some(last) = self.answered {
            let entries_after = usize::try_from(last.0.saturating_sub(cursor.0)).unwrap_or(usize::MAX);
            self.items.drain(..self.items.len().saturating_sub(entries_after));
        }
        self.items
    }
}

/// Returns a transaction that every store rejects, since no object has this id, but that makes these chunks known to the
/// store.
pub(crate) fn refused(chunks: Vec<(ChunkId, ChunkLocation)>) -> Transaction {
    Transaction { preconditions: vec![Precondition::Exists(ObjectId(0))], mutations: Vec::new(), chunks }
}

/// Identifies the last log entry that was read, to detect a store that was rolled back or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFingerprint {
    /// Sequence number of the commit.
    pub seq: Seq,
    /// The digest of the whole entry.
    pub digest: [u8; 8],
}

impl LogFingerprint {
    /// Computes the fingerprint of an entry.
    pub fn of(entry: &LogEntry) -> Self {
        let hash = blake3::hash(&codec::encode(entry));
        let mut digest = [0; 8];
        digest.copy_from_slice(&hash.as_bytes()[..8]);
        Self { seq: entry.seq, digest }
    }
}

/// The reasons why a round failed.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of planning.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The store was rolled back, or is another one. Following it from here would skip commits of other nodes, and reading
    /// its whole tree would remove here what it lost.
    #[error(
        "the store was rolled back: commit {0}, which this node has read, is no longer in it; \
            restore a newer copy of the \
         store, or copy the missing files from this replica and start again with an empty one"
    )]
    WentBack(Seq),
    /// The replica cannot be read or written.
    #[error("cannot access the replica: {0}")]
    Replica(#[from] Errno),
}

/// The interface of synchronisation to a replica.
pub trait SyncReplica {
    /// Returns the current time.
    fn now(&self) -> Time;

    /// Returns the position up to which the log was read.
    ///
    /// # Errors
    /// The errors of reading.
    fn cursor(&self) -> Result<Seq, Errno>;

    /// Returns the fingerprint stored by [`set_fingerprint`](Self::set_fingerprint).
    ///
    /// # Errors
    /// The errors of reading.
    fn fingerprint(&self) -> Result<Option<LogFingerprint>, Errno>;

    /// Stores the fingerprint of the last log entry read.
    ///
    /// # Errors
    /// The errors of writing.
    fn set_fingerprint(&self, mark: LogFingerprint) -> Result<(), Errno>;

    /// Returns the state stored by [`set_verified_position`](Self::set_verified_position).
    ///
    /// # Errors
    /// The errors of reading.
    fn verified_position(&self) -> Result<Option<VerifiedPosition>, Errno> {
        Ok(None)
    }

    /// Stores the verified position of a sealed log and updates the counts of its writers.
    ///
    /// # Errors
    /// The errors of writing.
    fn set_verified_position(&self, position: &VerifiedPosition) -> Result<(), Errno> {
        let _ = position;
        Ok(())
    }

    /// Reads a consistent state of the trees.
    ///
    /// # Errors
    /// The errors of the closure.
    fn read(&self, read: &mut dyn FnMut(&dyn Trees) -> Result<(), PlanError>) -> Result<(), PlanError>;

    /// Plans and applies changes, with the new log position, in one transaction.
    ///
    /// # Errors
    /// The errors of the closure, and of writing. Nothing is changed then.
    fn change(&self, cursor: Option<Seq>, plan: &mut Plan<'_>) -> Result<(), PlanError>;

    /// Applies several plans in order, each for a log entry, with their [fingerprints](Self::fingerprint): in one transaction, or as
    /// many of the first as succeed.
    ///
    /// # Errors
    /// The errors of [`change`](Self::change).
    fn change_each(&self, plans: &mut [(LogFingerprint, Box<Plan<'_>>)]) -> Result<(), PlanError> {
        plans.iter_mut().try_for_each(|(mark, plan)| {
            self.change(Some(mark.seq), plan)?;
            Ok(self.set_fingerprint(*mark)?)
        })
    }

    /// Returns about `limit` names and objects that may differ from the base, in the order of their changes, behind the
    /// position `after`. With the position to continue at, or `None` at the end.
    ///
    /// # Errors
    /// The errors of reading.
    fn dirty_set(&self, after: i64, limit: usize) -> Result<(DirtySet, Option<i64>), Errno>;

    /// Uploads contents of files, for some hours at most. A file that cannot be uploaded now is in the result,
    /// without a content.
    ///
    /// # Errors
    /// The errors of the object store, and of reading.
    fn upload(&self, files: Vec<(Ino, Object)>) -> Result<Vec<FileUpload>, SyncError>;

    /// Reports whether a file is open for writing, so that it may differ from the base at any moment.
    ///
    /// # Errors
    /// The errors of reading.
    fn is_open_for_writing(&self, num: Ino) -> Result<bool, Errno> {
        let _ = num;
        Ok(false)
    }

    /// Records that the store was rolled back, or is valid again. In between, local contents may be the only copies.
    ///
    /// # Errors
    /// The errors of writing.
    fn set_rollback_detected(&self, detected: bool) -> Result<(), Errno> {
        let _ = detected;
        Ok(())
    }

    /// Returns the pending batch of commits.
    ///
    /// # Errors
    /// The errors of reading.
    fn outbox(&self) -> Result<Option<Outbox>, Errno>;

    /// Stores the pending batch of commits, which survives a crash of the process from here on.
    ///
    /// # Errors
    /// The errors of writing.
    fn set_outbox(&self, outbox: Option<&Outbox>) -> Result<(), Errno>;

    /// Returns the names with conflicts.
    ///
    /// # Errors
    /// The errors of reading.
    fn conflicts(&self) -> Result<Vec<DentryKey>, Errno>;
}
