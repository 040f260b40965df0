//! Leases: which objects somebody has changed without the log telling of it yet.
//!
//! Every connected node reads as if it held a read lease on the whole volume: it opens what it has without asking. Whoever
//! changes something takes a write lease on that object, and goes on once all the others have [seen](LeaseRequest::seen) it.
//! From then on they wait when they come to that object, until the lease was [freed](LeaseRequest::free) at a place of the log
//! that they have read. A node that is not heard of for a while, or sees nothing, is in nobody's way: its session ends, and
//! its leases with it.
//!
//! The [`LeaseTable`] says the rules, once for all engines: each keeps it as one row, changed under a lock. Nothing of it need
//! outlive a crash, since a node whose session is gone begins a new one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::penalties::{Penalties, SLOW};
use crate::id::{NodeName, ObjectId, Seq};
use crate::object::Time;

/// The object that stands for all of them.
pub const EVERYTHING: ObjectId = ObjectId(0);

/// Sessions of a volume at a time. Later ones go on without leases.
const MAX_SESSIONS: usize = 4096;
/// The same of one node: it may have died and come back some times.
const MAX_SESSIONS_OF_NODE: usize = 8;
/// Leases of a session at a time, and in what it says at once: more than a node takes.
pub(crate) const MAX_LEASES: usize = 2048;
/// The longest life of a session that says nothing.
const MAX_SESSION_TTL: Duration = Duration::from_secs(30);
/// Who says something, and for so long not that it has seen what came, is as good as silent. A node says within its life of five
/// seconds that it has seen all that it was told the last time: within two of them that it has seen what came.
const MAX_ACK_DELAY_TIMEOUT: Duration = Duration::from_secs(15);

/// What a node says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// Which session: a number that no other has, and that nobody else knows.
    pub session: u128,
    /// It ends when nothing is said for so many milliseconds.
    pub life: u32,
    /// All up to this [place](LeaseResponse::at) is taken account of.
    pub seen: u64,
    /// Leases to take, by numbers that no other has. One that is there is not taken twice.
    pub take: Vec<(u64, ObjectId)>,
    /// Leases to give back, with the commit by which all that was changed is in the log.
    pub free: Vec<(u64, Seq)>,
    /// The session ends.
    pub ends: bool,
}

/// What became of a lease of somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseEvent {
    /// Its number.
    pub lease: u64,
    /// On what.
    pub object: ObjectId,
    /// Whose.
    pub who: u64,
    /// It was given back: what was changed is in the log up to there.
    pub freed: Option<Seq>,
}

/// What a node hears.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseResponse {
    /// The session is new: leases that the node had before are gone.
    pub began: bool,
    /// Up to here this tells all. What was taken by this call has this place.
    pub at: u64,
    /// Goes up when somebody has seen something.
    pub acks: u64,
    /// All other nodes have seen what has at most this place.
    pub all_seen: u64,
    /// Other sessions.
    pub company: u32,
    /// Goes up when another session begins.
    pub newest: u64,
    /// The last commit.
    pub head: Seq,
    /// What became of leases of others since [`LeaseRequest::seen`].
    pub events: Vec<LeaseEvent>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Session {
    id: u128,
    who: u64,
    node: NodeName,
    seen: u64,
    ends: Time,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Lease {
    at: u64,
    event: LeaseEvent,
}

/// Where a session stays while there is more to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Behind {
    who: u64,
    seen: u64,
    since: Time,
}

impl Behind {
    fn is_long(&self, now: Time) -> bool {
        self.lasts(now) > MAX_ACK_DELAY_TIMEOUT
    }

    fn lasts(&self, now: Time) -> Duration {
        Duration::from_nanos(now.0.saturating_sub(self.since.0).max(0).cast_unsigned())
    }
}

/// All sessions and leases of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTable {
    /// Goes up with what all have to see.
    at: u64,
    acks: u64,
    newest: u64,
    sessions: Vec<Session>,
    leases: Vec<Lease>,
    /// Comes after the rest, where older versions do not look.
    #[serde(skip)]
    behind: Vec<Behind>,
    /// Comes after that.
    #[serde(skip)]
    late: Penalties,
}

impl LeaseTable {
    /// Reads one. What makes no sense is as good as none: all sessions begin anew.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let Ok((mut board, rest)) = postcard::take_from_bytes::<Self>(bytes) else { return Self::default() };
        if let Ok((behind, rest)) = postcard::take_from_bytes(rest) {
            board.behind = behind;
            board.late = postcard::from_bytes(rest).unwrap_or_default();
        }
        board
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = super::codec::encode(self);
        bytes.extend(super::codec::encode(&self.behind));
        bytes.extend(super::codec::encode(&self.late));
        bytes
    }

    /// Its places, for those who wait: of what all have to see, and of what was seen.
    pub(crate) fn places(&self) -> (u64, u64) {
        (self.at, self.acks)
    }

    /// Others than this one.
    pub(crate) fn is_shared(&self) -> bool {
        self.sessions.len() > 1
    }

    /// One says something and hears of the others. `None`: there are too many of them, or of what is said, or nobody waits for
    /// this node now, because it made others wait.
    pub fn exchange(
        &mut self,
        node: &NodeName,
        ask: &LeaseRequest,
        now: Time,
        head: Seq,
    ) -> Option<LeaseResponse> {
        if ask.take.len().max(ask.free.len()) > MAX_LEASES {
            return None;
        }
        let next = self.at + 1;
        let before = self.at;
        let stays: Vec<u64> = self.behind.iter().filter(|one| one.is_long(now)).map(|one| one.who).collect();
        let late = |session: &Session| {
            // What this one says now may be that it has seen more.
            let stays =
                stays.contains(&session.who) && (session.id != ask.session || ask.seen <= session.seen);
            session.ends <= now || stays || (ask.ends && session.id == ask.session)
        };
        let gone: Vec<u64> =
            self.sessions.iter().filter(|session| late(session)).map(|session| session.who).collect();
        let slow: Vec<(u64, Duration)> = self
            .behind
            .iter()
            .map(|one| (one.who, one.lasts(now)))
            .filter(|(_, lasts)| *lasts > SLOW)
            .collect();
        // Who says at last that it ends owes nothing from then on, but was waited for as well. Several sessions of a node that
        // end together are one failing.
        let failed = |session: &&Session| {
            gone.contains(&session.who) && slow.iter().any(|(who, _)| *who == session.who)
        };
        let mut failed: Vec<&NodeName> =
            self.sessions.iter().filter(failed).map(|session| &session.node).collect();
        failed.sort_unstable();
        failed.dedup();
        failed.into_iter().for_each(|node| self.late.ended(node, now));
        if !gone.is_empty() {
            self.sessions.retain(|session| !late(session));
            for lease in &mut self.leases {
                if gone.contains(&lease.event.who) && lease.event.freed.is_none() {
                    lease.event.freed = Some(head);
                    lease.at = next;
                }
            }
            self.at = next;
        }
        if ask.ends {
            self.forget();
            self.note_behind(now);
            return Some(LeaseResponse { at: self.at, acks: self.acks, head, ..LeaseResponse::default() });
        }

        let life = Duration::from_millis(ask.life.into()).min(MAX_SESSION_TTL);
        let ends = Time(now.0.saturating_add(life.as_nanos() as i64));
        let known = self.sessions.iter().position(|session| session.id == ask.session);
        let began = known.is_none();
        let mine = match known {
            Some(mine) => mine,
            None if self.late.is_shut_out(node, now) => return None,
            None if self.sessions.len() >= MAX_SESSIONS || self.count(node) >= MAX_SESSIONS_OF_NODE => {
                return None;
            }
            None => {
                self.newest += 1;
                self.at = next;
                let (id, who) = (ask.session, self.newest);
                self.sessions.push(Session { id, who, node: node.clone(), seen: next, ends });
                self.sessions.len() - 1
            }
        };
        let who = self.sessions[mine].who;
        let mut seen = 0;
        if !began {
            let session = &mut self.sessions[mine];
            session.ends = ends;
            // A clock that was set back must not make anybody live for ever.
            seen = ask.seen.min(before);
            if seen > session.seen {
                session.seen = seen;
                self.acks += 1;
                let waited = slow.iter().find(|(slow, _)| *slow == who).map(|(_, waited)| *waited);
                if waited.is_some_and(|waited| self.late.acknowledged(node, waited, now)) {
                    // The next time it says something its session is gone.
                    self.late.ended(node, now);
                    self.sessions[mine].ends = now;
                }
            }
        }
        let latest = Time(now.0.saturating_add(MAX_SESSION_TTL.as_nanos() as i64));
        self.sessions.iter_mut().for_each(|session| session.ends = session.ends.min(latest));

        let mut held = self.leases.iter().filter(|lease| lease.event.who == who).count();
        for &(lease, object) in &ask.take {
            let is_there = self.leases.iter().any(|known| known.event.lease == lease);
            if !is_there && held < MAX_LEASES {
                held += 1;
                self.at = next;
                self.leases.push(Lease { at: next, event: LeaseEvent { lease, object, who, freed: None } });
            }
        }
        for lease in self.leases.iter_mut().filter(|lease| lease.event.who == who) {
            let freed = ask.free.iter().find(|(freed, _)| *freed == lease.event.lease);
            if let Some((_, seq)) = freed
                && lease.event.freed.is_none()
            {
                lease.event.freed = Some(*seq);
                lease.at = next;
                self.at = next;
            }
        }
        self.forget();
        self.note_behind(now);

        let others = || self.sessions.iter().filter(|session| session.who != who);
        let news = self.leases.iter().filter(|lease| lease.event.who != who && lease.at > seen);
        Some(LeaseResponse {
            began,
            at: self.at,
            acks: self.acks,
            all_seen: others().map(|session| session.seen).min().unwrap_or(u64::MAX),
            company: others().count() as u32,
            newest: others().map(|session| session.who).max().unwrap_or_default(),
            head,
            events: news.map(|lease| lease.event).collect(),
        })
    }

    fn count(&self, node: &NodeName) -> usize {
        self.sessions.iter().filter(|session| session.node == *node).count()
    }

    /// Notes who has not seen all, and since when it has seen no more.
    fn note_behind(&mut self, now: Time) {
        let before = std::mem::take(&mut self.behind);
        for session in self.sessions.iter().filter(|session| session.seen < self.at) {
            let (who, seen) = (session.who, session.seen);
            let same = before.iter().find(|one| (one.who, one.seen) == (who, seen));
            // A clock that was set back must not give anybody more time.
            let since = same.map_or(now, |one| one.since.min(now));
            self.behind.push(Behind { who, seen, since });
        }
    }

    /// Drops what everybody has seen the end of.
    fn forget(&mut self) {
        let seen = self.sessions.iter().map(|session| session.seen).min().unwrap_or(u64::MAX);
        self.leases.retain(|lease| lease.event.freed.is_none() || lease.at > seen);
    }
}
