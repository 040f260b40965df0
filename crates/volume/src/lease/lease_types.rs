//! The leases that a node holds, waits for and knows of, as [`LeaseState`](super::state::LeaseState) keeps them.

use std::collections::VecDeque;
use std::time::Instant;

use futures::channel::oneshot;

use crate::id::{ObjectId, Seq};

/// A claim of this node.
#[derive(Debug)]
pub(super) struct LockLease {
    pub(super) lock_key: ObjectId,
    pub(super) requested: bool,
    /// Who waits for the answer.
    pub(super) requester: Option<oneshot::Sender<LockAnswer>>,
}

/// What became of a wish.
#[derive(Debug)]
pub enum LockAnswer {
    /// It holds, until it is [given back](Leases::release) or this node is cut off.
    Granted(LockGrant),
    /// Somebody else's is in the way. Ready once one of somebody else ended.
    Busy(oneshot::Receiver<()>),
}

/// A claim that was had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockGrant {
    pub(super) lease: u64,
    /// It excludes all others.
    pub exclusive: bool,
}

/// A lease of somebody else.
#[derive(Debug)]
pub(super) struct PeerLease {
    pub(super) object: ObjectId,
    pub(super) session: u64,
    pub(super) stage: Stage,
}

/// How far what was changed has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is on its way into the log.
    Pending,
    /// It is in the log, up to there.
    Committed(Seq),
    /// It is here, and the kernel is being told.
    Applied,
}

/// Who waits until a lease has come so far.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) leases: Vec<u64>,
    /// What the kernel has of it counts too.
    pub(super) for_listing: bool,
    pub(super) done: oneshot::Sender<()>,
}

/// Something that was changed here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UncommittedChange {
    /// A name in a directory.
    Name(u64, Box<[u8]>),
    /// What a file holds.
    File(u64),
    /// All that was changed up to then.
    All,
}

/// A file that somebody closes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Closing {
    /// The end of its open is to come, or not, until then.
    Soon(Instant),
    /// It came, when [`State::serial`] was so high.
    Past(u64),
}

/// A lease of this node.
#[derive(Debug)]
pub(super) struct WriteLease {
    pub(super) object: ObjectId,
    pub(super) since: Instant,
    /// Where it stands on the board, once it does.
    pub(super) at: Option<u64>,
    /// All others have seen it.
    pub(super) acked: bool,
    /// In the order of the changes.
    pub(super) changes: VecDeque<(u64, UncommittedChange)>,
    pub(super) waiters: Vec<oneshot::Sender<()>>,
}
