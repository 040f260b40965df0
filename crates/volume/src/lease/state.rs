//! The state of a node's lease session: its own leases, those of its peers, and who waits for them.

use std::collections::HashMap;
use std::time::Instant;

use futures::channel::oneshot;

use super::SESSION_TTL;
use super::lease_types::{Closing, LockLease, PeerLease, Waiter, WriteLease};
use crate::id::{ObjectId, Seq};

pub(super) struct State {
    pub(super) session: u128,
    /// Until then the peers respect this node's leases, and it theirs. Measured by the local clock from before the request.
    pub(super) valid: Option<Instant>,
    /// The position in the lease table and the last commit at the start of the session: the node is connected once all peers
    /// have seen the former and it has read the latter.
    pub(super) began: (u64, Seq),
    pub(super) begun: bool,
    /// All lease table entries up to this position are processed.
    pub(super) seen: u64,
    pub(super) acks: u64,
    pub(super) company: u32,
    pub(super) newest: u64,
    /// A peer may be waiting for this node to acknowledge an entry.
    pub(super) owes_ack: bool,
    /// The last round of synchronisation read the log up to this commit.
    pub(super) cursor: Seq,
    /// The cursor at two earlier times; the second is at least one session TTL ago.
    marks: [(Instant, Seq); 2],
    /// A round succeeded: the root directory is up to date before the kernel asks for it.
    pub(super) rounded: bool,
    /// The serial number of the last uncommitted change.
    pub(super) serial: u64,
    pub(super) own: HashMap<u64, WriteLease>,
    /// The lease of each object that takes further changes.
    pub(super) by_object: HashMap<ObjectId, u64>,
    /// Objects created under a lease: peers reach them only through the name that it announces.
    pub(super) fresh: HashMap<u64, u64>,
    /// Files between close and release.
    pub(super) closing: HashMap<u64, Closing>,
    /// Lock leases of this node.
    pub(super) claims: HashMap<u64, LockLease>,
    /// Lock leases of peers.
    pub(super) foreign_claims: HashMap<u64, ObjectId>,
    /// Requesters waiting for a conflicting lock lease to end.
    pub(super) claim_waiters: Vec<oneshot::Sender<()>>,
    pub(super) to_free: Vec<(u64, Seq)>,
    pub(super) foreign: HashMap<u64, PeerLease>,
    pub(super) arrivals: Vec<Waiter>,
    /// Slow peers, by session, and until when nobody waits for them.
    pub(super) resented: HashMap<u64, Instant>,
    /// A hint announced new entries in the lease table.
    pub(super) woken: bool,
    pub(super) online: bool,
    /// The last request to the store failed.
    pub(super) failed: bool,
    pub(super) ended: bool,
}

impl State {
    pub(super) fn new(session: u128) -> Self {
        Self {
            session,
            valid: None,
            began: (0, Seq(0)),
            begun: false,
            seen: 0,
            acks: 0,
            company: 0,
            newest: 0,
            owes_ack: false,
            cursor: Seq(0),
            marks: [(Instant::now(), Seq(0)); 2],
            rounded: false,
            serial: 0,
            own: HashMap::new(),
            by_object: HashMap::new(),
            fresh: HashMap::new(),
            closing: HashMap::new(),
            claims: HashMap::new(),
            foreign_claims: HashMap::new(),
            claim_waiters: Vec::new(),
            to_free: Vec::new(),
            foreign: HashMap::new(),
            arrivals: Vec::new(),
            resented: HashMap::new(),
            woken: false,
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
        self.begun && self.rounded && self.is_valid() && self.cursor >= self.began.1
    }

    /// Records that the log was read up to a commit.
    pub(super) fn set_cursor(&mut self, cursor: Seq) {
        self.cursor = self.cursor.max(cursor);
        if self.marks[0].0.elapsed() >= SESSION_TTL {
            self.marks = [(Instant::now(), self.cursor), self.marks[0]];
        }
    }

    /// Reports whether the creator of an object may still consider it unknown to its peers.
    pub(super) fn is_young(&self, made: Seq) -> bool {
        made > self.marks[1].1
    }

    /// Ends the session and starts with a new id; the old session expires in the store.
    pub(super) fn lose(&mut self) {
        self.forget();
        self.session = rand::random();
    }

    /// Drops all leases and waits.
    pub(super) fn forget(&mut self) {
        self.valid = None;
        self.begun = false;
        self.company = 0;
        // Dropped senders end the waits.
        self.own.clear();
        self.by_object.clear();
        self.fresh.clear();
        self.closing.clear();
        self.claims.clear();
        self.foreign_claims.clear();
        self.claim_waiters.clear();
        self.to_free.clear();
        self.foreign.clear();
        self.arrivals.clear();
    }
}
