//! The threads that exchange leases with the store: one sends requests and heartbeats, the other waits for hints.

use std::time::{Duration, Instant};

use super::lock_leases::is_lock_key;
use super::state::LeaseState;
use super::{HEARTBEAT_INTERVAL, Inner, SESSION_TTL};
use crate::backoff::Backoff;
use crate::id::Seq;
use crate::runtime::runtime;
use crate::store::{LeaseRequest, LeaseResponse, StoreError};

/// Length of a wait for a hint; [`ACK_POLL_TIMEOUT`] is that of a wait for acknowledgements.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(1);
const ACK_POLL_TIMEOUT: Duration = Duration::from_millis(50);
/// Longest wait for kernel invalidations.
const INVALIDATION_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum interval between attempts to reach the store.
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Sends requests to the store until the end.
pub(super) fn run(inner: &Inner) {
    let mut again = Backoff::new(MAX_BACKOFF);
    let mut last_request: Option<Instant> = None;
    loop {
        let mut state = inner.state.lock();
        if state.ended || !state.online {
            let (valid, ended) = (state.is_valid(), state.ended);
            let session = state.session;
            state.end_session();
            inner.publish_flags(&state);
            drop(state);
            if valid {
                let ask = LeaseRequest { session, ends_session: true, ..LeaseRequest::default() };
                inner.store.lease(&inner.node, &ask).ok();
            }
            if ended {
                return;
            }
            last_request = None;
            let mut state = inner.state.lock();
            while !state.online && !state.ended {
                inner.wake.wait(&mut state);
            }
            continue;
        }
        let due = last_request.is_none_or(|at| at.elapsed() >= HEARTBEAT_INTERVAL);
        if !due && !state.has_request() {
            if state.awaits_acks() || state.valid.is_some() && !state.is_established {
                let (seen, acks) = (state.event_cursor, state.acks);
                drop(state);
                match inner.store.wait_lease(seen, Some(acks), ACK_POLL_TIMEOUT) {
                    Ok(true) => inner.state.lock().has_hint = true,
                    Ok(false) => {}
                    Err(error) => inner.end_session(&error),
                }
                continue;
            }
            let left =
                last_request.map_or(HEARTBEAT_INTERVAL, |at| HEARTBEAT_INTERVAL.saturating_sub(at.elapsed()));
            inner.wake.wait_for(&mut state, left);
            continue;
        }
        let ask = state.build_request();
        drop(state);
        let before = Instant::now();
        last_request = Some(before);
        match inner.store.lease(&inner.node, &ask) {
            Ok(response) => {
                again.reset();
                handle_response(inner, &ask, &response, before);
            }
            Err(error) => {
                inner.end_session(&error);
                // The store does not support leases: rare attempts are enough.
                let wait = if let StoreError::Denied(_) = error { MAX_BACKOFF } else { again.next_pause() };
                let mut state = inner.state.lock();
                let until = Instant::now() + wait;
                while !state.ended && !inner.wake.wait_until(&mut state, until).timed_out() {}
                last_request = None;
            }
        }
    }
}

fn handle_response(inner: &Inner, ask: &LeaseRequest, response: &LeaseResponse, before: Instant) {
    let mut state = inner.state.lock();
    if state.session != ask.session {
        return;
    }
    let taken = state.apply_response(ask, response, before);
    if taken {
        // Before the invalidations: requests that the kernel makes from then on find the leases.
        inner.publish_flags(&state);
        let stale = inner.replica.names_stale();
        drop(state);
        runtime().block_on(async { drop(tokio::time::timeout(INVALIDATION_TIMEOUT, stale).await) });
        state = inner.state.lock();
    }
    if state.session != ask.session {
        return;
    }
    state.peers = response.peers;
    // From here on changes are announced. Earlier ones are announced as a whole, below.
    inner.publish_flags(&state);
    // A new peer. A node that begins a session itself has nothing earlier to announce: it was not connected.
    let newcomer = response.newest > state.newest;
    state.ack_pending = taken || newcomer;
    if newcomer && !response.is_new_session {
        // Changes that the store rejects are not announced.
        let sends = inner.store.only_reads().is_none();
        if sends && inner.replica.pending_count().unwrap_or(1) > 0 {
            state.track_everything();
            inner.sync_waker.wake();
        }
    }
    state.newest = state.newest.max(response.newest);
    state.event_cursor = response.at;
    state.acks = response.acks;
    state.seen_by_all(response.all_seen);
    state.is_established |= response.all_seen >= state.session_start.0;
    state.failed = false;
    inner.apply_cursor(&mut state);
    inner.publish_flags(&state);
    // Fetches the commits that waiters need.
    if !state.peer_leases.is_empty() || !state.is_connected() {
        inner.sync_waker.wake();
    }
    inner.wake.notify_all();
}

impl LeaseState {
    fn has_request(&self) -> bool {
        let woken = self.has_hint || self.valid.is_none();
        let claims = self.lock_leases.values().any(|claim| !claim.requested);
        woken
            || claims
            || self.ack_pending
            || !self.to_release.is_empty()
            || self.write_leases.values().any(|own| own.at.is_none())
    }

    fn build_request(&mut self) -> LeaseRequest {
        self.has_hint = false;
        let mut ask = LeaseRequest {
            session: self.session,
            ttl_ms: SESSION_TTL.as_millis() as u32,
            acked: self.event_cursor,
            ..LeaseRequest::default()
        };
        // The first request only begins the session.
        if self.valid.is_some() {
            let new = self.write_leases.iter().filter(|(_, own)| own.at.is_none());
            ask.acquire = new.map(|(lease, own)| (*lease, own.object)).collect();
            let claims = self.lock_leases.iter().filter(|(_, claim)| !claim.requested);
            ask.acquire.extend(claims.map(|(lease, claim)| (*lease, claim.lock_key)));
            ask.release = std::mem::take(&mut self.to_release);
        }
        ask
    }

    /// Applies the response of the store. Returns true if peers took leases.
    fn apply_response(&mut self, ask: &LeaseRequest, response: &LeaseResponse, before: Instant) -> bool {
        if response.is_new_session {
            let (valid, company) = (self.valid, self.peers);
            self.reset();
            // Nobody waits for these any more, and nobody else would give them back.
            let claims = ask.acquire.iter().filter(|(_, on)| is_lock_key(*on));
            self.to_release.extend(claims.map(|(lease, _)| (*lease, Seq(0))));
            tracing::debug!(?valid, company, "the session of leases began");
            self.session_start = (response.at, response.head);
            self.newest = 0;
        }
        self.valid = Some(before + SESSION_TTL);
        for (lease, _) in &ask.acquire {
            if let Some(own) = self.write_leases.get_mut(lease) {
                own.at = Some(response.at);
            }
        }
        let mut taken = false;
        for event in &response.events {
            match is_lock_key(event.object) {
                true => self.apply_lock_event(event.lease, event.object, event.released_at.is_some()),
                false => taken |= self.apply_event(event),
            }
        }
        Inner::resolve_lock_requests(self, &ask.acquire);
        taken
    }
}

/// Waits for hints and wakes the other thread when the lease table has new entries.
pub(super) fn listen(inner: &Inner) {
    let mut again = Backoff::new(LONG_POLL_TIMEOUT);
    loop {
        let (seen, rest) = {
            let state = inner.state.lock();
            if state.ended {
                return;
            }
            (state.event_cursor, !state.online || state.valid.is_none() || state.has_hint)
        };
        if rest {
            let mut state = inner.state.lock();
            if !state.ended {
                inner.wake.wait_for(&mut state, Duration::from_millis(100));
            }
            continue;
        }
        match inner.store.wait_lease(seen, None, LONG_POLL_TIMEOUT) {
            Ok(true) => {
                again.reset();
                let mut state = inner.state.lock();
                // It was heard of meanwhile.
                if state.event_cursor == seen {
                    state.has_hint = true;
                    inner.wake.notify_all();
                    let until = Instant::now() + LONG_POLL_TIMEOUT;
                    while state.event_cursor == seen
                        && !state.ended
                        && !inner.wake.wait_until(&mut state, until).timed_out()
                    {}
                }
            }
            Ok(false) => again.reset(),
            Err(_) => std::thread::sleep(again.next_pause()),
        }
    }
}
