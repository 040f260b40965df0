//! Leases: announce changes of objects that are not in the log yet.
//!
//! Every connected node reads as if it held a read lease on the whole volume: it opens cached files without a request. A node
//! that changes an object takes a write lease on it and proceeds once all other nodes have acknowledged it
//! ([`acked`](LeaseRequest::acked)). From then on they wait on opening that object, until they have read the log up to the entry
//! with which the lease was [released](LeaseRequest::release). A node that is silent for a while or acknowledges nothing cannot
//! block others: its session ends, and its leases with it.
//!
//! The [`LeaseTable`] implements the rules, once for all engines: each engine stores it as one row, changed under a lock. It
//! need not survive a crash, since a node whose session is lost begins a new one.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use shunt_volume_types::id::{NodeName, ObjectId, Seq};
use shunt_volume_types::object::Time;

use super::penalties::{Penalties, SLOW_ACK_DELAY};

/// A pseudo object that stands for all objects.
pub const EVERYTHING: ObjectId = ObjectId(0);

/// Maximum number of sessions of a volume. Further nodes work without leases.
const MAX_SESSIONS: usize = 4096;
/// Maximum number of sessions of one node: it may have crashed and restarted several times.
const MAX_SESSIONS_OF_NODE: usize = 8;
/// Maximum number of leases of a session, and in one request: more than a node takes.
pub const MAX_LEASES: usize = 2048;
/// Longest lifetime of a session without a request.
const MAX_SESSION_TTL: Duration = Duration::from_secs(30);
/// A node that sends requests but acknowledges nothing new for this long is treated as silent. Within its session's lifetime of
/// five seconds a node acknowledges all that the last response contained, so it acknowledges an event within two lifetimes.
const MAX_ACK_DELAY_TIMEOUT: Duration = Duration::from_secs(15);

/// A request of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// Identifier of the session: unique, and secret.
    pub session: u128,
    /// The session ends after this many milliseconds without a request.
    pub ttl_ms: u32,
    /// Acknowledges all events up to this [position](LeaseResponse::at).
    pub acked: u64,
    /// Leases to take, by unique numbers. Taking a lease again changes nothing.
    pub acquire: Vec<(u64, ObjectId)>,
    /// Leases to release, each with the commit by which all changes under it are in the log.
    pub release: Vec<(u64, Seq)>,
    /// Ends the session.
    pub ends_session: bool,
}

/// A lease of another node that was taken or released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseEvent {
    /// Number of the lease.
    pub lease: u64,
    /// The object it covers.
    pub object: ObjectId,
    /// The session that holds it.
    pub session: u64,
    /// Set once it is released: the changes are in the log up to this commit.
    pub released_at: Option<Seq>,
}

/// The response to a [`LeaseRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseResponse {
    /// The session is new: earlier leases of the node are lost.
    pub is_new_session: bool,
    /// The response covers all events up to this position, which is also that of the leases taken by this request.
    pub at: u64,
    /// Incremented whenever a session acknowledges events.
    pub acks: u64,
    /// All other nodes have acknowledged the events up to this position.
    pub all_seen: u64,
    /// Number of other sessions.
    pub peers: u32,
    /// Number of the newest other session; increases when one begins.
    pub newest: u64,
    /// The last commit.
    pub head: Seq,
    /// Events of leases of others since [`LeaseRequest::acked`].
    pub events: Vec<LeaseEvent>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Session {
    id: u128,
    number: u64,
    node: NodeName,
    seen: u64,
    ends: Time,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Lease {
    at: u64,
    event: LeaseEvent,
}

/// A session with outstanding acknowledgements: how far it has acknowledged, and since when it stays there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct LaggingSession {
    session: u64,
    seen: u64,
    since: Time,
}

impl LaggingSession {
    fn is_long(&self, now: Time) -> bool {
        self.age(now) > MAX_ACK_DELAY_TIMEOUT
    }

    fn age(&self, now: Time) -> Duration {
        Duration::from_nanos(now.0.saturating_sub(self.since.0).max(0).cast_unsigned())
    }
}

/// All sessions and leases of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTable {
    /// Position of the latest event that all have to acknowledge.
    at: u64,
    acks: u64,
    newest: u64,
    sessions: Vec<Session>,
    leases: Vec<Lease>,
    /// Encoded after the fields above, where older versions ignore it.
    #[serde(skip)]
    lagging: Vec<LaggingSession>,
    /// Encoded after `lagging`, where older versions ignore it.
    #[serde(skip)]
    penalties: Penalties,
}

impl LeaseTable {
    /// Decodes a table. Undecodable bytes yield an empty one: all sessions restart.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let Ok((mut board, rest)) = postcard::take_from_bytes::<Self>(bytes) else { return Self::default() };
        if let Ok((behind, rest)) = postcard::take_from_bytes(rest) {
            board.lagging = behind;
            board.penalties = postcard::from_bytes(rest).unwrap_or_default();
        }
        board
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = super::codec::encode(self);
        bytes.extend(super::codec::encode(&self.lagging));
        bytes.extend(super::codec::encode(&self.penalties));
        bytes
    }

    /// Returns the positions that waiters watch: of events, and of acknowledgements.
    pub(crate) fn positions(&self) -> (u64, u64) {
        (self.at, self.acks)
    }

    /// Reports whether more than one session is connected.
    pub(crate) fn is_shared(&self) -> bool {
        self.sessions.len() > 1
    }

    /// Performs a request of one node. `None`: it exceeds a limit on sessions or leases, or the node is locked out for a while
    /// because it made others wait.
    pub fn exchange(
        &mut self,
        node: &NodeName,
        request: &LeaseRequest,
        now: Time,
        head: Seq,
    ) -> Option<LeaseResponse> {
        if request.acquire.len().max(request.release.len()) > MAX_LEASES {
            return None;
        }
        let next = self.at + 1;
        let before = self.at;
        let stays: Vec<u64> =
            self.lagging.iter().filter(|one| one.is_long(now)).map(|one| one.session).collect();
        let late = |session: &Session| {
            // This request may contain the missing acknowledgement.
            let stays = stays.contains(&session.number)
                && (session.id != request.session || request.acked <= session.seen);
            session.ends <= now || stays || (request.ends_session && session.id == request.session)
        };
        let ended: Vec<u64> =
            self.sessions.iter().filter(|session| late(session)).map(|session| session.number).collect();
        let slow: Vec<(u64, Duration)> = self
            .lagging
            .iter()
            .map(|one| (one.session, one.age(now)))
            .filter(|(_, lasts)| *lasts > SLOW_ACK_DELAY)
            .collect();
        // A node that finally ends its session owes nothing from then on, but others have waited for it too. Several sessions
        // of a node that end together count as one failure.
        let failed = |session: &&Session| {
            ended.contains(&session.number) && slow.iter().any(|(number, _)| *number == session.number)
        };
        let mut failed: Vec<&NodeName> =
            self.sessions.iter().filter(failed).map(|session| &session.node).collect();
        failed.sort_unstable();
        failed.dedup();
        failed.into_iter().for_each(|node| self.penalties.ended(node, now));
        if !ended.is_empty() {
            self.sessions.retain(|session| !late(session));
            for lease in &mut self.leases {
                if ended.contains(&lease.event.session) && lease.event.released_at.is_none() {
                    lease.event.released_at = Some(head);
                    lease.at = next;
                }
            }
            self.at = next;
        }
        if request.ends_session {
            self.drop_acknowledged();
            self.record_lagging(now);
            return Some(LeaseResponse { at: self.at, acks: self.acks, head, ..LeaseResponse::default() });
        }

        let life = Duration::from_millis(request.ttl_ms.into()).min(MAX_SESSION_TTL);
        let ends = Time(now.0.saturating_add(life.as_nanos() as i64));
        let known = self.sessions.iter().position(|session| session.id == request.session);
        let began = known.is_none();
        let own = match known {
            Some(own) => own,
            None if self.penalties.is_locked_out(node, now) => return None,
            None if self.sessions.len() >= MAX_SESSIONS || self.count(node) >= MAX_SESSIONS_OF_NODE => {
                return None;
            }
            None => {
                self.newest += 1;
                self.at = next;
                let (id, number) = (request.session, self.newest);
                self.sessions.push(Session { id, number, node: node.clone(), seen: next, ends });
                self.sessions.len() - 1
            }
        };
        let number = self.sessions[own].number;
        let mut seen = 0;
        if !began {
            let session = &mut self.sessions[own];
            session.ends = ends;
            seen = request.acked.min(before);
            if seen > session.seen {
                session.seen = seen;
                self.acks += 1;
                let waited = slow.iter().find(|(slow, _)| *slow == number).map(|(_, waited)| *waited);
                if waited.is_some_and(|waited| self.penalties.acknowledged(node, waited, now)) {
                    // Its next request finds the session ended.
                    self.penalties.ended(node, now);
                    self.sessions[own].ends = now;
                }
            }
        }
        let latest = Time(now.0.saturating_add(MAX_SESSION_TTL.as_nanos() as i64));
        self.sessions.iter_mut().for_each(|session| session.ends = session.ends.min(latest));

        let mut held = self.leases.iter().filter(|lease| lease.event.session == number).count();
        for &(lease, object) in &request.acquire {
            let is_there = self.leases.iter().any(|known| known.event.lease == lease);
            if !is_there && held < MAX_LEASES {
                held += 1;
                self.at = next;
                self.leases.push(Lease {
                    at: next,
                    event: LeaseEvent { lease, object, session: number, released_at: None },
                });
            }
        }
        for lease in self.leases.iter_mut().filter(|lease| lease.event.session == number) {
            let freed = request.release.iter().find(|(freed, _)| *freed == lease.event.lease);
            if let Some((_, seq)) = freed
                && lease.event.released_at.is_none()
            {
                lease.event.released_at = Some(*seq);
                lease.at = next;
                self.at = next;
            }
        }
        self.drop_acknowledged();
        self.record_lagging(now);

        let others = || self.sessions.iter().filter(|session| session.number != number);
        let unseen = self.leases.iter().filter(|lease| lease.event.session != number && lease.at > seen);
        Some(LeaseResponse {
            is_new_session: began,
            at: self.at,
            acks: self.acks,
            all_seen: others().map(|session| session.seen).min().unwrap_or(u64::MAX),
            peers: others().count() as u32,
            newest: others().map(|session| session.number).max().unwrap_or_default(),
            head,
            events: unseen.map(|lease| lease.event).collect(),
        })
    }

    fn count(&self, node: &NodeName) -> usize {
        self.sessions.iter().filter(|session| session.node == *node).count()
    }

    /// Records the sessions with outstanding acknowledgements, and since when they acknowledged nothing new.
    fn record_lagging(&mut self, now: Time) {
        let before = std::mem::take(&mut self.lagging);
        for session in self.sessions.iter().filter(|session| session.seen < self.at) {
            let (number, seen) = (session.number, session.seen);
            let same = before.iter().find(|one| (one.session, one.seen) == (number, seen));
            // If the clock was set back, a session does not gain time by it.
            let since = same.map_or(now, |one| one.since.min(now));
            self.lagging.push(LaggingSession { session: number, seen, since });
        }
    }

    /// Drops released leases whose release all sessions have acknowledged.
    fn drop_acknowledged(&mut self) {
        let seen = self.sessions.iter().map(|session| session.seen).min().unwrap_or(u64::MAX);
        self.leases.retain(|lease| lease.event.released_at.is_none() || lease.at > seen);
    }
}
