//! The threads that exchange leases with the store: one sends requests and heartbeats, the other waits for hints.

use std::time::{Duration, Instant};

use super::lock_leases::is_lock_key;
use super::state::LeaseState;
use super::{HEARTBEAT_INTERVAL, Inner, SESSION_TTL};
use crate::backoff::{Backoff, jittered};
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
    let mut backoff = Backoff::new(MAX_BACKOFF);
    let mut last_request: Option<Instant> = None;
    let mut predecessor = inner.memory.as_ref().and_then(|memory| memory.last());
    let mut recorded = None;
    loop {
        let mut state = inner.state.lock();
        if state.ended || !state.online {
            let (valid, ended) = (state.is_valid(), state.ended);
            let session = state.session;
            state.end_session();
            inner.publish_flags(&state);
            drop(state);
            if valid {
                let request = LeaseRequest { session, ends_session: true, ..LeaseRequest::default() };
                inner.store.lease(&inner.node, &request).ok();
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
            let remaining =
                last_request.map_or(HEARTBEAT_INTERVAL, |at| HEARTBEAT_INTERVAL.saturating_sub(at.elapsed()));
            inner.wake.wait_for(&mut state, remaining);
            continue;
        }
        let request = state.build_request();
        drop(state);
        let before = Instant::now();
        last_request = Some(before);
        if let Some(memory) = inner.memory.as_ref().filter(|_| recorded != Some(request.session)) {
            memory.record(request.session);
            recorded = Some(request.session);
        }
        match inner.store.lease(&inner.node, &request) {
            Ok(response) => {
                backoff.reset();
                handle_response(inner, &request, &response, before);
                if let Some(session) = predecessor.take() {
                    end_predecessor(inner, session, &response);
                }
            }
            Err(error) => {
                inner.end_session(&error);
                // The store does not support leases: rare attempts are enough.
                let wait = if let StoreError::Denied(_) = error {
                    jittered(MAX_BACKOFF)
                } else {
                    backoff.next_pause()
                };
                let mut state = inner.state.lock();
                let until = Instant::now() + wait;
                while !state.ended && !inner.wake.wait_until(&mut state, until).timed_out() {}
                last_request = None;
            }
        }
    }
}

/// Ends the session of the last process, once the changes that it may have announced are announced by this one.
fn end_predecessor(inner: &Inner, session: u128, response: &LeaseResponse) {
    let mut state = inner.state.lock();
    // One of the peers is the last process.
    if response.peers > 1 && inner.replica.pending_count().unwrap_or(1) > 0 {
        state.track_everything();
        let request = state.build_request();
        drop(state);
        inner.sync_waker.wake();
        let before = Instant::now();
        if let Ok(response) = inner.store.lease(&inner.node, &request) {
            handle_response(inner, &request, &response, before);
        }
    } else {
        drop(state);
    }
    let end = LeaseRequest { session, ends_session: true, ..LeaseRequest::default() };
    if let Err(error) = inner.store.lease(&inner.node, &end) {
        tracing::debug!("the lease session of the last daemon stays until it expires: {error}");
    }
    // The next response no longer counts it.
    inner.state.lock().has_hint = true;
}

fn handle_response(inner: &Inner, request: &LeaseRequest, response: &LeaseResponse, before: Instant) {
    let mut state = inner.state.lock();
    if state.session != request.session {
        return;
    }
    let has_new = state.apply_response(request, response, before);
    if has_new {
        // Before the invalidations: requests that the kernel makes from then on find the leases.
        inner.publish_flags(&state);
        let stale = inner.replica.names_stale();
        drop(state);
        runtime().block_on(async { drop(tokio::time::timeout(INVALIDATION_TIMEOUT, stale).await) });
        state = inner.state.lock();
    }
    if state.session != request.session {
        return;
    }
    state.peers = response.peers;
    // From here on changes are announced. Earlier ones are announced as a whole, below.
    inner.publish_flags(&state);
    // A new peer. A node that begins a session itself has nothing earlier to announce: it was not connected.
    let newcomer = response.newest > state.newest;
    state.ack_pending = has_new || newcomer;
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
        let requests_lock = self.lock_leases.values().any(|lease| !lease.requested);
        woken
            || requests_lock
            || self.ack_pending
            || !self.to_release.is_empty()
            || self.write_leases.values().any(|own| own.at.is_none())
    }

    fn build_request(&mut self) -> LeaseRequest {
        self.has_hint = false;
        let mut request = LeaseRequest {
            session: self.session,
            ttl_ms: SESSION_TTL.as_millis() as u32,
            acked: self.event_cursor,
            ..LeaseRequest::default()
        };
        // The first request only begins the session.
        if self.valid.is_some() {
            let new = self.write_leases.iter().filter(|(_, own)| own.at.is_none());
            request.acquire = new.map(|(lease, own)| (*lease, own.object)).collect();
            let requests = self.lock_leases.iter().filter(|(_, lease)| !lease.requested);
            request.acquire.extend(requests.map(|(id, lease)| (*id, lease.lock_key)));
            request.release = std::mem::take(&mut self.to_release);
        }
        request
    }

    /// Applies the response of the store. Returns true if peers took leases.
    fn apply_response(&mut self, request: &LeaseRequest, response: &LeaseResponse, before: Instant) -> bool {
        if response.is_new_session {
            let (valid, peers) = (self.valid, self.peers);
            self.reset();
            // The requesters ended with the old session, so these leases are released at once.
            let lock_leases = request.acquire.iter().filter(|(_, object)| is_lock_key(*object));
            self.to_release.extend(lock_leases.map(|(lease, _)| (*lease, Seq(0))));
            tracing::debug!(?valid, peers, "lease session began");
            self.session_start = (response.at, response.head);
            self.newest = 0;
        }
        self.valid = Some(before + SESSION_TTL);
        for (lease, _) in &request.acquire {
            if let Some(own) = self.write_leases.get_mut(lease) {
                own.at = Some(response.at);
            }
        }
        let mut has_new = false;
        for event in &response.events {
            match is_lock_key(event.object) {
                true => self.apply_lock_event(event.lease, event.object, event.released_at.is_some()),
                false => has_new |= self.apply_event(event),
            }
        }
        Inner::resolve_lock_requests(self, &request.acquire);
        has_new
    }
}

/// Waits for hints and wakes the other thread when the lease table has new entries.
pub(super) fn listen(inner: &Inner) {
    let mut backoff = Backoff::new(LONG_POLL_TIMEOUT);
    loop {
        let (seen, is_paused) = {
            let state = inner.state.lock();
            if state.ended {
                return;
            }
            (state.event_cursor, !state.online || state.valid.is_none() || state.has_hint)
        };
        if is_paused {
            let mut state = inner.state.lock();
            if !state.ended {
                inner.wake.wait_for(&mut state, Duration::from_millis(100));
            }
            continue;
        }
        match inner.store.wait_lease(seen, None, LONG_POLL_TIMEOUT) {
            Ok(true) => {
                backoff.reset();
                let mut state = inner.state.lock();
                // Another thread may have processed the new entries already.
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
            Ok(false) => backoff.reset(),
            Err(_) => std::thread::sleep(backoff.next_pause()),
        }
    }
}
