//! Write leases of this node, each held until the changes under it are committed to the log.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use futures::channel::oneshot;

use super::state::LeaseState;
use super::types::{Closing, UncommittedChange, WriteLease};
use super::{Inner, SESSION_TTL, Wait};
use crate::id::{ObjectId, Seq};
use crate::replica::Replica;
use crate::store::lease_table::EVERYTHING;

/// How long a lease takes further changes. A new lease follows, so that peers waiting for the first do not wait for all later
/// changes of a busy writer.
const ACCEPT_TIMEOUT: Duration = Duration::from_millis(250);
/// Maximum number of leases of this node. Above it, one lease on everything is taken.
const MAX_WRITE_LEASES: usize = 512;
/// Maximum number of changes under a lease. Above it, the lease waits until everything is pushed.
const MAX_CHANGES_PER_LEASE: usize = 65_536;
/// Longest time from the close of a file to its release, if that was the last close of the open.
const LAST_CLOSE_DELAY: Duration = Duration::from_secs(1);

impl Inner {
    /// Announces a change to all peers. `made`: a new object that peers can reach only through the announced one. Returns the
    /// wait for their acknowledgement.
    pub(super) fn request_write_lease(
        &self,
        num: u64,
        change: UncommittedChange,
        made: Option<u64>,
    ) -> Option<Wait> {
        let node = self.replica.get(num).ok()?;
        // Peers can reach an object that the store has through a listing begun earlier, where a lease on the parent has no
        // effect.
        let is_new = node.created_seq == Seq(0);
        let mut state = self.state.lock();
        let wait = state.track(node.id, is_new.then_some(num), change, made);
        drop(state);
        self.wake.notify_all();
        self.sync_waker.wake();
        let wait = wait?;
        Some(Wait::new(async move { wait.await.unwrap_or_default() }, SESSION_TTL, || {}))
    }
}

impl LeaseState {
    /// Records the close of a file that may have been written.
    pub(super) fn begin_close(&mut self, num: u64) {
        self.closing.insert(num, Closing::Soon(Instant::now() + LAST_CLOSE_DELAY));
    }

    /// Records the release: the content can be pushed from now on.
    pub(super) fn end_close(&mut self, num: u64) {
        if let Some(closing) = self.closing.get_mut(&num) {
            self.serial += 1;
            *closing = Closing::Past(self.serial);
        }
    }

    /// Announces all pending changes to a new peer, which does not know of earlier closes.
    pub(super) fn track_everything(&mut self) {
        self.track(EVERYTHING, None, UncommittedChange::All, None);
    }

    /// Adds a change to an open lease on the object, or to a new lease. `new`: the inode number, if peers do not know the
    /// object. Returns the wait for the acknowledgement of all peers, if it is still to come.
    fn track(
        &mut self,
        id: ObjectId,
        new: Option<u64>,
        change: UncommittedChange,
        made: Option<u64>,
    ) -> Option<oneshot::Receiver<()>> {
        if !self.is_valid() || self.peers == 0 {
            return None;
        }
        let (id, change) =
            if self.write_leases.len() < MAX_WRITE_LEASES { (id, change) } else { (EVERYTHING, change) };
        let open = |own: &HashMap<u64, WriteLease>, lease: Option<&u64>| {
            let lease = *lease?;
            own.get(&lease).filter(|own| own.since.elapsed() < ACCEPT_TIMEOUT).map(|_| lease)
        };
        let fresh = new.and_then(|num| self.new_objects.get(&num));
        let found =
            open(&self.write_leases, fresh).or_else(|| open(&self.write_leases, self.by_object.get(&id)));
        let lease = found.unwrap_or_else(|| {
            let lease = rand::random::<u64>();
            let since = Instant::now();
            let own = WriteLease {
                object: id,
                since,
                at: None,
                acked: false,
                changes: VecDeque::new(),
                waiters: Vec::new(),
            };
            self.write_leases.insert(lease, own);
            self.by_object.insert(id, lease);
            lease
        });
        self.serial += 1;
        let own = self.write_leases.get_mut(&lease)?;
        match own.changes.len() < MAX_CHANGES_PER_LEASE {
            true => own.changes.push_back((self.serial, change)),
            // One `All` entry replaces the changes before it.
            false => own.changes = [(self.serial, UncommittedChange::All)].into(),
        }
        if let Some(made) = made {
            self.new_objects.insert(made, lease);
        }
        if own.acked {
            return None;
        }
        let (done, wait) = oneshot::channel();
        own.waiters.push(done);
        Some(wait)
    }

    /// Records that all peers have acknowledged the leases up to a position.
    pub(super) fn seen_by_all(&mut self, at: u64) {
        for own in self.write_leases.values_mut().filter(|own| own.at.is_some_and(|position| position <= at))
        {
            own.acked = true;
            for waiter in own.waiters.drain(..) {
                waiter.send(()).ok();
            }
        }
    }

    /// Reports whether a lease waits for acknowledgements.
    pub(super) fn awaits_acks(&self) -> bool {
        self.write_leases.values().any(|own| own.at.is_some() && !own.acked)
    }

    /// Drops changes that are in the log, after a round of synchronisation that began when [`serial`](Self::serial) was
    /// `began`; an `idle` round left nothing to push that can be pushed. Returns whether leases are to be released.
    pub(super) fn release_committed(&mut self, replica: &Replica, began: u64, idle: bool) -> bool {
        let now = Instant::now();
        let closing = &self.closing;
        let is_settled = |serial: u64, change: &UncommittedChange| {
            let closing = if let UncommittedChange::File(num) = change { closing.get(num) } else { None };
            let (waits, serial) = match closing {
                Some(Closing::Soon(until)) => (*until > now, serial),
                Some(Closing::Past(closed)) => (false, serial.max(*closed)),
                None => (false, serial),
            };
            let in_log = || match change {
                UncommittedChange::Name(parent, name) => replica.is_agreed_name(*parent, name),
                UncommittedChange::File(num) => replica.is_agreed_file(*num),
                UncommittedChange::All => Ok(false),
            };
            !waits && (idle && serial <= began || in_log().unwrap_or(false))
        };
        let mut released = Vec::new();
        for (lease, own) in &mut self.write_leases {
            while own.changes.front().is_some_and(|(serial, change)| is_settled(*serial, change)) {
                own.changes.pop_front();
            }
            // A lease without an acknowledgement stays: its writer still waits for one.
            if own.changes.is_empty() && own.acked {
                released.push(*lease);
            }
        }
        let cursor: Seq = self.cursor;
        for lease in &released {
            if let Some(own) = self.write_leases.remove(lease) {
                if self.by_object.get(&own.object) == Some(lease) {
                    self.by_object.remove(&own.object);
                }
                self.to_release.push((*lease, cursor));
            }
        }
        self.closing.retain(|_, closing| match closing {
            Closing::Soon(until) => *until > now,
            Closing::Past(closed) => !idle || *closed > began,
        });
        if !released.is_empty() {
            let own = &self.write_leases;
            self.new_objects.retain(|_, lease| own.contains_key(lease));
        }
        !released.is_empty()
    }
}
