//! The types of leases in [`LeaseState`](super::state::LeaseState): own write leases, lock leases, and leases of peers.

use std::collections::VecDeque;
use std::time::Instant;

use futures::channel::oneshot;

use crate::id::{ObjectId, Seq};

/// A lock lease of this node, or a request for one.
#[derive(Debug)]
pub(super) struct LockLease {
    pub(super) lock_key: ObjectId,
    pub(super) requested: bool,
    /// The task that waits for the answer.
    pub(super) requester: Option<oneshot::Sender<LockAnswer>>,
}

/// The result of a request for a lock lease.
#[derive(Debug)]
pub enum LockAnswer {
    /// The lease is held until it is [released](crate::lease::Leases::release) or this node is disconnected.
    Granted(LockGrant),
    /// A peer holds a conflicting lease. The receiver completes once a lock lease of a peer ends.
    Busy(oneshot::Receiver<()>),
}

/// A lock lease that was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockGrant {
    pub(super) lease: u64,
    /// It conflicts with shared leases too.
    pub exclusive: bool,
}

/// A lease of a peer.
#[derive(Debug)]
pub(super) struct PeerLease {
    pub(super) object: ObjectId,
    pub(super) session: u64,
    pub(super) stage: Stage,
}

/// The progress of the changes under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not in the log yet.
    Pending,
    /// In the log, up to this commit.
    Committed(Seq),
    /// Applied to the replica; the kernel's caches are being invalidated.
    Applied,
}

/// An operation that waits for leases to reach a stage.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) leases: Vec<u64>,
    /// Waits for the invalidation of the kernel's caches too.
    pub(super) for_listing: bool,
    pub(super) done: oneshot::Sender<()>,
}

/// A local change that is not in the log yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UncommittedChange {
    /// A name in a directory.
    Name(u64, Box<[u8]>),
    /// The content of a file.
    File(u64),
    /// All changes up to then.
    All,
}

/// The state of a file that is being closed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Closing {
    /// The release may follow until then.
    Soon(Instant),
    /// Released when [`LeaseState::serial`](super::state::LeaseState::serial) had this value.
    Past(u64),
}

/// A write lease of this node.
#[derive(Debug)]
pub(super) struct WriteLease {
    pub(super) object: ObjectId,
    pub(super) since: Instant,
    /// The position in the lease table, once the store has it.
    pub(super) at: Option<u64>,
    /// All peers have acknowledged it.
    pub(super) acked: bool,
    /// Uncommitted changes under the lease, in order.
    pub(super) changes: VecDeque<(u64, UncommittedChange)>,
    pub(super) waiters: Vec<oneshot::Sender<()>>,
}
