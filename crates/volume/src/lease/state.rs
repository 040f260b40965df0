//! The state of a node's lease session: its own leases, those of its peers, and the local operations that wait for them.

use std::collections::HashMap;
use std::time::Instant;

use futures::channel::oneshot;

use super::SESSION_TTL;
use super::types::{Closing, LockLease, PeerLease, Waiter, WriteLease};
use crate::id::{ObjectId, Seq};

pub(super) struct LeaseState {
    pub(super) session: u128,
    /// End of the session: until then this node and its peers respect each other's leases. Measured by the local clock from
    /// before the request.
    pub(super) valid: Option<Instant>,
    /// The position in the lease table and the last commit at the start of the session: the node is connected once all peers
    /// have seen the former and it has read the latter.
    pub(super) session_start: (u64, Seq),
    pub(super) is_established: bool,
    /// All lease table entries up to this position are processed.
    pub(super) event_cursor: u64,
    pub(super) acks: u64,
    pub(super) peers: u32,
    pub(super) newest: u64,
    /// A peer may be waiting for this node to acknowledge an entry.
    pub(super) ack_pending: bool,
    /// The last round of synchronisation read the log up to this commit.
    pub(super) cursor: Seq,
    /// The cursor at two earlier times; the second is at least one session TTL ago.
    cursor_history: [(Instant, Seq); 2],
    /// A round succeeded: the root directory is up to date before the kernel asks for it.
    pub(super) first_round_done: bool,
    /// The serial number of the last uncommitted change.
    pub(super) serial: u64,
    pub(super) write_leases: HashMap<u64, WriteLease>,
    /// The lease of each object that takes further changes.
    pub(super) by_object: HashMap<ObjectId, u64>,
    /// Objects created under a lease: peers reach them only through the name that it announces.
    pub(super) new_objects: HashMap<u64, u64>,
    /// Files between close and release.
    pub(super) closing: HashMap<u64, Closing>,
    /// Lock leases of this node.
    pub(super) lock_leases: HashMap<u64, LockLease>,
    /// Lock leases of peers.
    pub(super) peer_lock_leases: HashMap<u64, ObjectId>,
    /// Requesters waiting for a conflicting lock lease to end.
    pub(super) lock_waiters: Vec<oneshot::Sender<()>>,
    pub(super) to_release: Vec<(u64, Seq)>,
    pub(super) peer_leases: HashMap<u64, PeerLease>,
    pub(super) waiters: Vec<Waiter>,
    /// Slow peers by session, with the end of their penalty.
    pub(super) slow_peers: HashMap<u64, Instant>,
    /// A hint announced new entries in the lease table.
    pub(super) has_hint: bool,
    pub(super) online: bool,
    /// The last request to the store failed.
    pub(super) failed: bool,
    pub(super) ended: bool,
}

impl LeaseState {
    pub(super) fn new(session: u128) -> Self {
        Self {
            session,
            valid: None,
            session_start: (0, Seq(0)),
            is_established: false,
            event_cursor: 0,
            acks: 0,
            peers: 0,
            newest: 0,
            ack_pending: false,
            cursor: Seq(0),
            cursor_history: [(Instant::now(), Seq(0)); 2],
            first_round_done: false,
            serial: 0,
            write_leases: HashMap::new(),
            by_object: HashMap::new(),
            new_objects: HashMap::new(),
            closing: HashMap::new(),
            lock_leases: HashMap::new(),
            peer_lock_leases: HashMap::new(),
            lock_waiters: Vec::new(),
            to_release: Vec::new(),
            peer_leases: HashMap::new(),
            waiters: Vec::new(),
            slow_peers: HashMap::new(),
            has_hint: false,
            online: true,
            failed: false,
            ended: false,
        }
    }

    /// Reports whether the peers respect this node's leases.
    pub(super) fn is_valid(&self) -> bool {
        self.valid.is_some_and(|until| Instant::now() < until)
    }

    /// Reports whether this node sees what peers close, and they see what it closes.
    pub(super) fn is_connected(&self) -> bool {
        self.is_established && self.first_round_done && self.is_valid() && self.cursor >= self.session_start.1
    }

    /// Records that the log was read up to a commit.
    pub(super) fn set_cursor(&mut self, cursor: Seq) {
        self.cursor = self.cursor.max(cursor);
        if self.cursor_history[0].0.elapsed() >= SESSION_TTL {
            self.cursor_history = [(Instant::now(), self.cursor), self.cursor_history[0]];
        }
    }

    /// Reports whether the creator of an object may still consider it unknown to its peers.
    pub(super) fn is_recently_created(&self, made: Seq) -> bool {
        made > self.cursor_history[1].1
    }

    /// Ends the session and starts with a new id; the old session expires in the store.
    pub(super) fn end_session(&mut self) {
        self.reset();
        self.session = rand::random();
    }

    /// Drops all leases and waits.
    pub(super) fn reset(&mut self) {
        self.valid = None;
        self.is_established = false;
        self.peers = 0;
        // Dropped senders end the waits.
        self.write_leases.clear();
        self.by_object.clear();
        self.new_objects.clear();
        self.closing.clear();
        self.lock_leases.clear();
        self.peer_lock_leases.clear();
        self.lock_waiters.clear();
        self.to_release.clear();
        self.peer_leases.clear();
        self.waiters.clear();
    }
}
