//! What a node knows of leases.

use std::collections::HashMap;
use std::time::Instant;

use futures::channel::oneshot;

use super::SESSION_TTL;
use super::lease_types::{Closing, LockLease, PeerLease, Waiter, WriteLease};
use crate::id::{ObjectId, Seq};

pub(super) struct State {
    pub(super) session: u128,
    /// Until then the others count on this node, and so it on them. By its own clock, from before it was asked for.
    pub(super) valid: Option<Instant>,
    /// Where the session began, and the last commit by then: it is connected once all others have seen the one and it has
    /// read the other.
    pub(super) began: (u64, Seq),
    pub(super) begun: bool,
    /// Up to there all is taken account of.
    pub(super) seen: u64,
    pub(super) acks: u64,
    pub(super) company: u32,
    pub(super) newest: u64,
    /// Somebody may wait for this node to have seen something.
    pub(super) owes_ack: bool,
    /// The last round of synchronisation read the log up to there.
    pub(super) cursor: Seq,
    /// The same at some time, and at the time before: a life of a session lies between it and now.
    marks: [(Instant, Seq); 2],
    /// Some round went well: the top directory is as the store has it, before the kernel asks for it.
    pub(super) rounded: bool,
    /// Of debts.
    pub(super) serial: u64,
    pub(super) own: HashMap<u64, WriteLease>,
    /// Those that take debts.
    pub(super) by_object: HashMap<ObjectId, u64>,
    /// Objects that were made under a lease: who does not find its name does not find them.
    pub(super) fresh: HashMap<u64, u64>,
    /// Files between the close and the end of the open.
    pub(super) closing: HashMap<u64, Closing>,
    /// Of this node.
    pub(super) claims: HashMap<u64, LockLease>,
    /// Of others.
    pub(super) foreign_claims: HashMap<u64, ObjectId>,
    /// Those who want one that was in their way to end.
    pub(super) claim_waiters: Vec<oneshot::Sender<()>>,
    pub(super) to_free: Vec<(u64, Seq)>,
    pub(super) foreign: HashMap<u64, PeerLease>,
    pub(super) arrivals: Vec<Waiter>,
    /// Other sessions that nobody waits for until then.
    pub(super) resented: HashMap<u64, Instant>,
    /// The hints said that there is something to hear.
    pub(super) woken: bool,
    pub(super) online: bool,
    /// The store could not be asked the last time.
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

    /// The others count on this node.
    pub(super) fn is_valid(&self) -> bool {
        self.valid.is_some_and(|until| Instant::now() < until)
    }

    /// It sees what others close, and they see what it closes.
    pub(super) fn is_connected(&self) -> bool {
        self.begun && self.rounded && self.is_valid() && self.cursor >= self.began.1
    }

    /// The log was read up to there.
    pub(super) fn set_cursor(&mut self, cursor: Seq) {
        self.cursor = self.cursor.max(cursor);
        if self.marks[0].0.elapsed() >= SESSION_TTL {
            self.marks = [(Instant::now(), self.cursor), self.marks[0]];
        }
    }

    /// Whether who made an object may still hold it for one that only he knows.
    pub(super) fn is_young(&self, made: Seq) -> bool {
        made > self.marks[1].1
    }

    /// The session is over. It is not taken up again: what the store has of it is left to its end.
    pub(super) fn lose(&mut self) {
        self.forget();
        self.session = rand::random();
    }

    /// Nobody waits for this node, and it for nobody.
    pub(super) fn forget(&mut self) {
        self.valid = None;
        self.begun = false;
        self.company = 0;
        // Senders that are dropped end the wait.
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
