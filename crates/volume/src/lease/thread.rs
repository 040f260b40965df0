//! The threads that exchange leases with the store: one sends requests and heartbeats, the other waits for hints.

use std::time::{Duration, Instant};

use super::lock_leases::is_claim;
use super::state::State;
use super::{HEARTBEAT_INTERVAL, Inner, SESSION_TTL};
use crate::backoff::Backoff;
use crate::id::Seq;
use crate::runtime::runtime;
use crate::store::{LeaseRequest, LeaseResponse, StoreError};

/// Length of a wait for a hint; [`ACK`] is that of a wait for acknowledgements.
const HINT: Duration = Duration::from_secs(1);
const ACK: Duration = Duration::from_millis(50);
/// Longest wait for kernel invalidations.
const KERNEL: Duration = Duration::from_secs(1);
/// Maximum interval between attempts to reach the store.
const SELDOM: Duration = Duration::from_secs(10);

/// Sends requests to the store until the end.
pub(super) fn run(inner: &Inner) {
    let mut again = Backoff::new(SELDOM);
    let mut said_at: Option<Instant> = None;
    loop {
        let mut state = inner.state.lock();
        if state.ended || !state.online {
            let (valid, ended) = (state.is_valid(), state.ended);
            let session = state.session;
            state.lose();
            inner.note(&state);
            drop(state);
            if valid {
                let ask = LeaseRequest { session, ends: true, ..LeaseRequest::default() };
                inner.store.lease(&inner.node, &ask).ok();
            }
            if ended {
                return;
            }
            said_at = None;
            let mut state = inner.state.lock();
            while !state.online && !state.ended {
                inner.wake.wait(&mut state);
            }
            continue;
        }
        let due = said_at.is_none_or(|at| at.elapsed() >= HEARTBEAT_INTERVAL);
        if !due && !state.has_something_to_say() {
            if state.awaits_acks() || state.valid.is_some() && !state.begun {
                let (seen, acks) = (state.seen, state.acks);
                drop(state);
                match inner.store.wait_lease(seen, Some(acks), ACK) {
                    Ok(true) => inner.state.lock().woken = true,
                    Ok(false) => {}
                    Err(error) => inner.lose(&error),
                }
                continue;
            }
            let left =
                said_at.map_or(HEARTBEAT_INTERVAL, |at| HEARTBEAT_INTERVAL.saturating_sub(at.elapsed()));
            inner.wake.wait_for(&mut state, left);
            continue;
        }
        let ask = state.ask();
        drop(state);
        let before = Instant::now();
        said_at = Some(before);
        match inner.store.lease(&inner.node, &ask) {
            Ok(told) => {
                again.begin();
                hear(inner, &ask, &told, before);
            }
            Err(error) => {
                inner.lose(&error);
                // The store does not support leases: rare attempts are enough.
                let wait = if let StoreError::Denied(_) = error { SELDOM } else { again.next() };
                let mut state = inner.state.lock();
                let until = Instant::now() + wait;
                while !state.ended && !inner.wake.wait_until(&mut state, until).timed_out() {}
                said_at = None;
            }
        }
    }
}

fn hear(inner: &Inner, ask: &LeaseRequest, told: &LeaseResponse, before: Instant) {
    let mut state = inner.state.lock();
    if state.session != ask.session {
        return;
    }
    let taken = state.heard(ask, told, before);
    if taken {
        // Before the invalidations: requests that the kernel makes from then on find the leases.
        inner.note(&state);
        let stale = inner.replica.names_stale();
        drop(state);
        runtime().block_on(async { drop(tokio::time::timeout(KERNEL, stale).await) });
        state = inner.state.lock();
    }
    if state.session != ask.session {
        return;
    }
    state.company = told.company;
    // From here on changes are announced. Earlier ones are announced as a whole, below.
    inner.note(&state);
    // A new peer. A node that begins a session itself has nothing earlier to announce: it was not connected.
    let newcomer = told.newest > state.newest;
    state.owes_ack = taken || newcomer;
    if newcomer && !told.began {
        // Changes that the store rejects are not announced.
        let sends = inner.store.only_reads().is_none();
        if sends && inner.replica.pending_count().unwrap_or(1) > 0 {
            state.owe_all();
            inner.synchronise.wake();
        }
    }
    state.newest = state.newest.max(told.newest);
    state.seen = told.at;
    state.acks = told.acks;
    state.seen_by_all(told.all_seen);
    state.begun |= told.all_seen >= state.began.0;
    state.failed = false;
    inner.read_up(&mut state);
    inner.note(&state);
    // Fetches the commits that waiters need.
    if !state.foreign.is_empty() || !state.is_connected() {
        inner.synchronise.wake();
    }
    inner.wake.notify_all();
}

impl State {
    fn has_something_to_say(&self) -> bool {
        let woken = self.woken || self.valid.is_none();
        let claims = self.claims.values().any(|claim| !claim.said);
        woken
            || claims
            || self.owes_ack
            || !self.to_free.is_empty()
            || self.own.values().any(|own| own.at.is_none())
    }

    fn ask(&mut self) -> LeaseRequest {
        self.woken = false;
        let mut ask = LeaseRequest {
            session: self.session,
            life: SESSION_TTL.as_millis() as u32,
            seen: self.seen,
            ..LeaseRequest::default()
        };
        // The first request only begins the session.
        if self.valid.is_some() {
            let new = self.own.iter().filter(|(_, own)| own.at.is_none());
            ask.take = new.map(|(lease, own)| (*lease, own.object)).collect();
            let claims = self.claims.iter().filter(|(_, claim)| !claim.said);
            ask.take.extend(claims.map(|(lease, claim)| (*lease, claim.on)));
            ask.free = std::mem::take(&mut self.to_free);
        }
        ask
    }

    /// Processes the store's reply. Returns whether peers took leases.
    fn heard(&mut self, ask: &LeaseRequest, told: &LeaseResponse, before: Instant) -> bool {
        if told.began {
            let (valid, company) = (self.valid, self.company);
            self.forget();
            // Nobody waits for these lock leases any more, and nothing else would release them.
            let claims = ask.take.iter().filter(|(_, on)| is_claim(*on));
            self.to_free.extend(claims.map(|(lease, _)| (*lease, Seq(0))));
            tracing::debug!(?valid, company, "a session of leases begins");
            self.began = (told.at, told.head);
            self.newest = 0;
        }
        self.valid = Some(before + SESSION_TTL);
        for (lease, _) in &ask.take {
            if let Some(own) = self.own.get_mut(lease) {
                own.at = Some(told.at);
            }
        }
        let mut taken = false;
        for event in &told.events {
            match is_claim(event.object) {
                true => self.hear_claim(event.lease, event.object, event.freed.is_some()),
                false => taken |= self.hear(event),
            }
        }
        Inner::judge_claims(self, &ask.take);
        taken
    }
}

/// Waits for hints and wakes the other thread when the lease table has new entries.
pub(super) fn listen(inner: &Inner) {
    let mut again = Backoff::new(HINT);
    loop {
        let (seen, rest) = {
            let state = inner.state.lock();
            if state.ended {
                return;
            }
            (state.seen, !state.online || state.valid.is_none() || state.woken)
        };
        if rest {
            let mut state = inner.state.lock();
            if !state.ended {
                inner.wake.wait_for(&mut state, Duration::from_millis(100));
            }
            continue;
        }
        match inner.store.wait_lease(seen, None, HINT) {
            Ok(true) => {
                again.begin();
                let mut state = inner.state.lock();
                // It may have been processed meanwhile.
                if state.seen == seen {
                    state.woken = true;
                    inner.wake.notify_all();
                    let until = Instant::now() + HINT;
                    while state.seen == seen
                        && !state.ended
                        && !inner.wake.wait_until(&mut state, until).timed_out()
                    {}
                }
            }
            Ok(false) => again.begin(),
            Err(_) => std::thread::sleep(again.next()),
        }
    }
}
