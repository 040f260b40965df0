//! What synchronisation needs of a replica.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::id::{ObjectId, Seq};
use crate::merge::{DentryKey, DirtySet, Ino, Plan, PlanError, Trees, UploadedContent};
use crate::object::{ChunkId, Object, Time};
use crate::store::ledger::LedgerState;
use crate::store::{ChunkLocation, LogEntry, Precondition, StoreError, Transaction, codec};

/// Commits that are on their way. Kept by the replica until the log has told what became of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outbox {
    /// By which the store knows them again.
    pub token: u128,
    /// In this order.
    pub items: Vec<Transaction>,
    /// The last commit that was accepted, 0 if none was; `None`: there was no answer yet.
    pub answered: Option<Seq>,
    /// When what it speaks of was begun to be looked for in the store of contents, and brought there: by the clock of the
    /// replica. `None`: nobody knows.
    pub begun: Option<Time>,
}

impl Outbox {
    /// As [`encode`](Self::encode) gave it, or an older version, which kept no time.
    ///
    /// # Errors
    /// Where it is neither.
    pub fn decode(bytes: &[u8]) -> Result<Self, postcard::Error> {
        postcard::from_bytes(bytes).or_else(|_| {
            let (token, items, answered) = postcard::from_bytes(bytes)?;
            Ok(Self { token, items, answered, begun: None })
        })
    }

    /// As a replica keeps it. The time comes last: older versions read what is before it.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Those that the store may have and of which the log was not read, up to this place of it. What was accepted of a batch is
    /// one behind the other in the log.
    pub fn unread(mut self, cursor: Seq) -> Vec<Transaction> {
        if let Some(last) = self.answered {
            let unread = usize::try_from(last.0.saturating_sub(cursor.0)).unwrap_or(usize::MAX);
            self.items.drain(..self.items.len().saturating_sub(unread));
        }
        self.items
    }
}

/// What no store accepts, since no object has this id: but that it knows these chunks from then on.
pub(crate) fn refused(chunks: Vec<(ChunkId, ChunkLocation)>) -> Transaction {
    Transaction { preconditions: vec![Precondition::Exists(ObjectId(0))], mutations: Vec::new(), chunks }
}

/// The last entry of the log that was read, by which a store that is not the same any more is told from the one that it was
/// read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFingerprint {
    /// Sequence number of the commit.
    pub seq: Seq,
    /// Of all that it says.
    pub digest: [u8; 8],
}

impl LogFingerprint {
    /// Of an entry.
    pub fn of(entry: &LogEntry) -> Self {
        let hash = blake3::hash(&codec::encode(entry));
        let mut digest = [0; 8];
        digest.copy_from_slice(&hash.as_bytes()[..8]);
        Self { seq: entry.seq, digest }
    }
}

/// Why a step was not made.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The store's reason.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The store went back to what it was once, or is another one. To follow it from here would skip what others commit, and
    /// to read its whole tree would remove here what it lost.
    #[error(
        "the store is older than this machine knows it: commit {0}, which was read from it, is not in it any more. Put back a \
         newer copy of it; or save what it lacks from here, and begin anew with an empty replica"
    )]
    WentBack(Seq),
    /// The replica cannot be read or written.
    #[error("the replica: {0}")]
    Replica(#[from] Errno),
}

/// A file and what of it went to the store of contents.
pub type Contents = (Ino, Option<(u64, UploadedContent)>);

/// A replica, as synchronisation sees it.
pub trait SyncReplica {
    /// The time.
    fn now(&self) -> Time;

    /// Up to where the log was read.
    ///
    /// # Errors
    /// Those of reading.
    fn cursor(&self) -> Result<Seq, Errno>;

    /// What was kept by [`set_fingerprint`](Self::set_fingerprint).
    ///
    /// # Errors
    /// Those of reading.
    fn fingerprint(&self) -> Result<Option<LogFingerprint>, Errno>;

    /// Keeps the last entry of the log that was read.
    ///
    /// # Errors
    /// Those of writing.
    fn set_fingerprint(&self, mark: LogFingerprint) -> Result<(), Errno>;

    /// What was kept by [`set_ledger`](Self::set_ledger).
    ///
    /// # Errors
    /// Those of reading.
    fn ledger(&self) -> Result<Option<LedgerState>, Errno> {
        Ok(None)
    }

    /// Keeps how far a sealed log was verified, and counts of writers beside those that are kept.
    ///
    /// # Errors
    /// Those of writing.
    fn set_ledger(&self, ledger: &LedgerState) -> Result<(), Errno> {
        let _ = ledger;
        Ok(())
    }

    /// Reads while nothing changes.
    ///
    /// # Errors
    /// Those of the closure.
    fn read(&self, read: &mut dyn FnMut(&dyn Trees) -> Result<(), PlanError>) -> Result<(), PlanError>;

    /// Makes a plan while nothing else changes, and changes the replica by it, with the place in the log up to which it
    /// was read: all in one transaction.
    ///
    /// # Errors
    /// Those of the closure, and of writing. Then nothing is changed.
    fn change(&self, cursor: Option<Seq>, plan: &mut Plan<'_>) -> Result<(), PlanError>;

    /// The same with several plans, each for an entry of the log, one after the other: together in one transaction, or as
    /// many of the first as went well. With the [mark](Self::mark).
    ///
    /// # Errors
    /// Those of [`change`](Self::change).
    fn change_each(&self, plans: &mut [(LogFingerprint, Box<Plan<'_>>)]) -> Result<(), PlanError> {
        plans.iter_mut().try_for_each(|(mark, plan)| {
            self.change(Some(mark.seq), plan)?;
            Ok(self.set_fingerprint(*mark)?)
        })
    }

    /// What may differ from what was agreed on, in the order of the changes: after a place in that order, about so many.
    /// With the place to go on at; `None`: that was all.
    ///
    /// # Errors
    /// Those of reading.
    fn dirty_set(&self, after: i64, most: usize) -> Result<(DirtySet, Option<i64>), Errno>;

    /// Brings what files hold into the store of contents, for some hours at most. `None`: it cannot go now. With its
    /// [`version`](Trees::version) when it was read.
    ///
    /// # Errors
    /// Those of the store of contents, and of reading.
    fn upload(&self, files: Vec<(Ino, Object)>) -> Result<Vec<Contents>, SyncError>;

    /// Whether somebody has a file open to be written: it may differ from what was agreed on at any moment.
    ///
    /// # Errors
    /// Those of reading.
    fn is_open_for_writing(&self, num: Ino) -> Result<bool, Errno> {
        let _ = num;
        Ok(false)
    }

    /// The store went back to what it was once, or is as it should be again: what is here may be nowhere else in between.
    ///
    /// # Errors
    /// Those of writing.
    fn set_rollback_detected(&self, is_distrusted: bool) -> Result<(), Errno> {
        let _ = is_distrusted;
        Ok(())
    }

    /// Commits on their way.
    ///
    /// # Errors
    /// Those of reading.
    fn outbox(&self) -> Result<Option<Outbox>, Errno>;

    /// Keeps commits on their way. They outlive this process when this returns.
    ///
    /// # Errors
    /// Those of writing.
    fn set_outbox(&self, outbox: Option<&Outbox>) -> Result<(), Errno>;

    /// Names with conflicts.
    ///
    /// # Errors
    /// Those of reading.
    fn conflicts(&self) -> Result<Vec<DentryKey>, Errno>;
}
