//! Leases of peers, and the local operations that wait for the changes announced by them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures::channel::oneshot;

use super::state::LeaseState;
use super::types::{PeerLease, Stage, Waiter};
use super::{Inner, OPEN_WAIT_TIMEOUT, SLOW_PEER_PENALTY, Wait};
use crate::id::ObjectId;
use crate::runtime::runtime;
use crate::store::LeaseEvent;
use crate::store::lease_table::EVERYTHING;

impl Inner {
    /// Returns what an operation on an object has to await, if peers hold leases on it.
    pub(super) fn wait_for_peers(self: &Arc<Self>, num: u64, lists: bool) -> Option<Wait> {
        if !self.has_peer_leases.load(Ordering::Acquire) {
            return None;
        }
        let node = self.replica.get(num).ok()?;
        let mut about = vec![node.id];
        // A new object of a peer is announced under its parent directory, and may be found there without a lookup, in a
        // listing.
        if self.state.lock().is_recently_created(node.created_seq) {
            about.extend(self.replica.parents(num).ok()?);
        }
        let mut state = self.state.lock();
        let (leases, wait) = state.add_waiter(&about, lists)?;
        drop(state);
        let inner = self.clone();
        Some(Wait::new(async move { wait.await.unwrap_or_default() }, OPEN_WAIT_TIMEOUT, move || {
            tracing::warn!(
                "opened a file without the changes of a peer: it did not commit them within {} s; \
                opens do not wait for it for {} s",
                OPEN_WAIT_TIMEOUT.as_secs(),
                SLOW_PEER_PENALTY.as_secs()
            );
            inner.state.lock().penalize(&leases);
        }))
    }

    /// Advances leases whose changes are applied, since the log was read up to the cursor. Listings also wait for the kernel
    /// invalidations; an open waits for the invalidations of its own file separately.
    pub(super) fn apply_cursor(&self, state: &mut LeaseState) {
        let applied = state.mark_applied();
        if applied.is_empty() {
            return;
        }
        let settled = self.replica.caches_settled();
        let inner = self.itself.clone();
        runtime().spawn(async move {
            settled.await;
            let Some(inner) = inner.upgrade() else { return };
            let mut state = inner.state.lock();
            state.drop_applied(&applied);
            inner.publish_flags(&state);
        });
    }
}

impl LeaseState {
    /// Processes a peer's lease event. Returns whether it is a new lease.
    pub(super) fn apply_event(&mut self, event: &LeaseEvent) -> bool {
        match event.released_at {
            None => {
                let peer_lease =
                    PeerLease { object: event.object, session: event.session, stage: Stage::Pending };
                self.peer_leases.insert(event.lease, peer_lease);
                true
            }
            Some(seq) => {
                if let Some(peer_lease) = self.peer_leases.get_mut(&event.lease)
                    && peer_lease.stage == Stage::Pending
                {
                    peer_lease.stage = Stage::Committed(seq);
                }
                false
            }
        }
    }

    fn add_waiter(&mut self, about: &[ObjectId], lists: bool) -> Option<(Vec<u64>, oneshot::Receiver<()>)> {
        if !self.is_valid() {
            return None;
        }
        let now = Instant::now();
        self.slow_peers.retain(|_, until| *until > now);
        let concerns = |peer_lease: &PeerLease| {
            (about.contains(&peer_lease.object) || peer_lease.object == EVERYTHING)
                && (lists || peer_lease.stage != Stage::Applied)
                && !self.slow_peers.contains_key(&peer_lease.session)
        };
        let leases: Vec<u64> = self
            .peer_leases
            .iter()
            .filter(|(_, peer_lease)| concerns(peer_lease))
            .map(|(lease, _)| *lease)
            .collect();
        if leases.is_empty() {
            return None;
        }
        let (done, wait) = oneshot::channel();
        self.waiters.push(Waiter { leases: leases.clone(), for_listing: lists, done });
        Some((leases, wait))
    }

    /// Stops waiting for the holders of these leases for a while, after a timeout.
    fn penalize(&mut self, leases: &[u64]) {
        let until = Instant::now() + SLOW_PEER_PENALTY;
        for peer_lease in leases.iter().filter_map(|lease| self.peer_leases.get(lease)) {
            self.slow_peers.insert(peer_lease.session, until);
        }
        self.waiters.retain(|waiter| !waiter.done.is_canceled());
    }

    /// Moves leases whose commits are applied to [`Stage::Applied`], and returns them.
    fn mark_applied(&mut self) -> Vec<u64> {
        let mut applied = Vec::new();
        for (lease, peer_lease) in &mut self.peer_leases {
            if matches!(peer_lease.stage, Stage::Committed(seq) if seq <= self.cursor) {
                peer_lease.stage = Stage::Applied;
                applied.push(*lease);
            }
        }
        if !applied.is_empty() {
            self.wake_ready();
        }
        applied
    }

    /// Drops leases whose changes are invalidated in the kernel.
    fn drop_applied(&mut self, leases: &[u64]) {
        for lease in leases {
            self.peer_leases.remove(lease);
        }
        self.wake_ready();
    }

    /// Wakes waiters whose leases have all been applied or released.
    pub(super) fn wake_ready(&mut self) {
        let peer_leases = &self.peer_leases;
        let waits = |waiter: &Waiter| {
            waiter.leases.iter().any(|lease| {
                peer_leases
                    .get(lease)
                    .is_some_and(|peer_lease| waiter.for_listing || peer_lease.stage != Stage::Applied)
            })
        };
        let (stay, go): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiters).into_iter().partition(waits);
        self.waiters = stay;
        for waiter in go {
            waiter.done.send(()).ok();
        }
    }
}
