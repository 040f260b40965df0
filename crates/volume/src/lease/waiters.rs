//! Leases of peers, and the local operations that wait for the changes announced by them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures::channel::oneshot;

use super::lease_types::{PeerLease, Stage, Waiter};
use super::state::State;
use super::{Inner, OPEN_WAIT_TIMEOUT, SLOW_PEER_PENALTY, Wait};
use crate::id::ObjectId;
use crate::runtime::runtime;
use crate::store::LeaseEvent;
use crate::store::lease_table::EVERYTHING;

impl Inner {
    /// Returns what an operation on an object has to await, if peers hold leases on it.
    pub(super) fn wait_for_peers(self: &Arc<Self>, num: u64, lists: bool) -> Option<Wait> {
        if !self.foreign.load(Ordering::Acquire) {
            return None;
        }
        let node = self.replica.get(num).ok()?;
        let mut about = vec![node.id];
        // A new object of a peer is announced under its parent directory, and may be found there without a lookup, in a
        // listing.
        if self.state.lock().is_young(node.created_seq) {
            about.extend(self.replica.parents(num).ok()?);
        }
        let mut state = self.state.lock();
        let (leases, wait) = state.arrive(&about, lists)?;
        drop(state);
        let inner = self.clone();
        Some(Wait::new(async move { wait.await.unwrap_or_default() }, OPEN_WAIT_TIMEOUT, move || {
            tracing::warn!("another machine does not send what it changed: going on without");
            inner.state.lock().resent(&leases);
        }))
    }

    /// Advances leases whose changes are applied, since the log was read up to the cursor. Listings also wait for the kernel
    /// invalidations; an open waits for the invalidations of its own file separately.
    pub(super) fn read_up(&self, state: &mut State) {
        let read = state.read_up();
        if read.is_empty() {
            return;
        }
        let told = self.replica.caches_settled();
        let inner = self.itself.clone();
        runtime().spawn(async move {
            told.await;
            let Some(inner) = inner.upgrade() else { return };
            let mut state = inner.state.lock();
            state.told(&read);
            inner.note(&state);
        });
    }
}

impl State {
    /// Processes a peer's lease event. Returns whether it is a new lease.
    pub(super) fn hear(&mut self, event: &LeaseEvent) -> bool {
        match event.freed {
            None => {
                let foreign = PeerLease { object: event.object, who: event.who, stage: Stage::Held };
                self.foreign.insert(event.lease, foreign);
                true
            }
            Some(seq) => {
                if let Some(foreign) = self.foreign.get_mut(&event.lease)
                    && foreign.stage == Stage::Held
                {
                    foreign.stage = Stage::Freed(seq);
                }
                false
            }
        }
    }

    fn arrive(&mut self, about: &[ObjectId], lists: bool) -> Option<(Vec<u64>, oneshot::Receiver<()>)> {
        if !self.is_valid() {
            return None;
        }
        let now = Instant::now();
        self.resented.retain(|_, until| *until > now);
        let concerns = |foreign: &PeerLease| {
            (about.contains(&foreign.object) || foreign.object == EVERYTHING)
                && (lists || foreign.stage != Stage::Read)
                && !self.resented.contains_key(&foreign.who)
        };
        let leases: Vec<u64> =
            self.foreign.iter().filter(|(_, foreign)| concerns(foreign)).map(|(lease, _)| *lease).collect();
        if leases.is_empty() {
            return None;
        }
        let (done, wait) = oneshot::channel();
        self.arrivals.push(Waiter { leases: leases.clone(), lists, done });
        Some((leases, wait))
    }

    /// Stops waiting for the holders of these leases for a while, after a timeout.
    fn resent(&mut self, leases: &[u64]) {
        let until = Instant::now() + SLOW_PEER_PENALTY;
        for foreign in leases.iter().filter_map(|lease| self.foreign.get(lease)) {
            self.resented.insert(foreign.who, until);
        }
        self.arrivals.retain(|waiter| !waiter.done.is_canceled());
    }

    /// Marks leases as read whose changes are applied, and returns them.
    fn read_up(&mut self) -> Vec<u64> {
        let mut read = Vec::new();
        for (lease, foreign) in &mut self.foreign {
            if matches!(foreign.stage, Stage::Freed(seq) if seq <= self.cursor) {
                foreign.stage = Stage::Read;
                read.push(*lease);
            }
        }
        if !read.is_empty() {
            self.let_in();
        }
        read
    }

    /// Drops leases whose changes are invalidated in the kernel.
    fn told(&mut self, leases: &[u64]) {
        for lease in leases {
            self.foreign.remove(lease);
        }
        self.let_in();
    }

    /// Wakes waiters that have nothing left to wait for.
    pub(super) fn let_in(&mut self) {
        let foreign = &self.foreign;
        let waits = |waiter: &Waiter| {
            waiter.leases.iter().any(|lease| {
                foreign.get(lease).is_some_and(|foreign| waiter.lists || foreign.stage != Stage::Read)
            })
        };
        let (stay, go): (Vec<_>, Vec<_>) = std::mem::take(&mut self.arrivals).into_iter().partition(waits);
        self.arrivals = stay;
        for waiter in go {
            waiter.done.send(()).ok();
        }
    }
}
