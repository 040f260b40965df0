//! What a node knows of leases.

use std::collections::HashMap;
use std::time::Instant;

use futures::channel::oneshot;

use super::SESSION_TTL;
use super::lease_types::{Closing, LockLease, PeerLease, Waiter, WriteLease};
use crate::id::{ObjectId, Seq};

pub(super) struct LeaseState {
    pub(super) session: u128,
    /// Until then the others count on this node, and so it on them. By its own clock, from before it was asked for.
    pub(super) valid: Option<Instant>,
    /// Where the session began, and the last commit by then: it is connected once all others have seen the one and it has
    /// read the other.
    pub(super) session_start: (u64, Seq),
    pub(super) is_established: bool,
    /// Up to there all is taken account of.
    pub(super) event_cursor: u64,
    pub(super) acks: u64,
    pub(super) peers: u32,
    pub(super) newest: u64,
    /// Somebody may wait for this node to have seen something.
    pub(super) ack_pending: bool,
    /// The last round of synchronisation read the log up to there.
    pub(super) cursor: Seq,
    /// The same at some time, and at the time before: a life of a session lies between it and now.
    cursor_history: [(Instant, Seq); 2],
    /// Some round went well: the top directory is as the store has it, before the kernel asks for it.
    pub(super) first_round_done: bool,
    /// Of debts.
    pub(super) serial: u64,
    pub(super) write_leases: HashMap<u64, WriteLease>,
    /// Those that take debts.
    pub(super) by_object: HashMap<ObjectId, u64>,
    /// Objects that were made under a lease: who does not find its name does not find them.
    pub(super) new_objects: HashMap<u64, u64>,
    /// Files between the close and the end of the open.
    pub(super) closing: HashMap<u64, Closing>,
    /// Of this node.
    pub(super) lock_leases: HashMap<u64, LockLease>,
    /// Of others.
    pub(super) peer_lock_leases: HashMap<u64, ObjectId>,
    /// Those who want one that was in their way to end.
    pub(super) lock_waiters: Vec<oneshot::Sender<()>>,
    pub(super) to_release: Vec<(u64, Seq)>,
    pub(super) peer_leases: HashMap<u64, PeerLease>,
    pub(super) waiters: Vec<Waiter>,
    /// Other sessions that nobody waits for until then.
    pub(super) slow_peers: HashMap<u64, Instant>,
    /// The hints said that there is something to hear.
    pub(super) has_hint: bool,
    pub(super) online: bool,
    /// The store could not be asked the last time.
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

    /// The others count on this node.
    pub(super) fn is_valid(&self) -> bool {
        self.valid.is_some_and(|until| Instant::now() < until)
    }

    /// It sees what others close, and they see what it closes.
    pub(super) fn is_connected(&self) -> bool {
        self.is_established && self.first_round_done && self.is_valid() && self.cursor >= self.session_start.1
    }

    /// The log was read up to there.
    pub(super) fn set_cursor(&mut self, cursor: Seq) {
        self.cursor = self.cursor.max(cursor);
        if self.cursor_history[0].0.elapsed() >= SESSION_TTL {
            self.cursor_history = [(Instant::now(), self.cursor), self.cursor_history[0]];
        }
    }

    /// Whether who made an object may still hold it for one that only he knows.
    pub(super) fn is_recently_created(&self, made: Seq) -> bool {
        made > self.cursor_history[1].1
    }

    /// The session is over. It is not taken up again: what the store has of it is left to its end.
    pub(super) fn end_session(&mut self) {
        self.reset();
        self.session = rand::random();
    }

    /// Nobody waits for this node, and it for nobody.
    pub(super) fn reset(&mut self) {
        self.valid = None;
        self.is_established = false;
        self.peers = 0;
        // Senders that are dropped end the wait.
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
