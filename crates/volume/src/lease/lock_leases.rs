//! Lock leases: leases that exclude each other, for file locks that hold on all connected nodes.
//!
//! A lock lease needs no acknowledgement of the peers. The lease table orders all leases, and the reply to a request includes
//! those before it: if a conflicting lock lease is among them, the new one is released at once. So no two nodes ever hold
//! conflicting lock leases, as long as their sessions live.

use futures::channel::oneshot;

use super::state::LeaseState;
use super::types::{LockAnswer, LockGrant, LockLease};
use super::{Inner, Leases};
use crate::id::{ObjectId, Seq};

/// The upper half of the ids that represent files in lock leases. No object has it, since object ids are random.
const LOCK_KEY_PREFIX: u128 = 0x5348_554e_544c_4f43 << 64;
/// Set in the lower half of the id of an exclusive lock lease.
const EXCLUSIVE: u128 = 1;

/// Maximum number of lock leases of a node, including requested ones: with its other leases, fewer than the lease table
/// takes.
const MAX_LOCK_LEASES: usize = 512;

fn lock_key(id: ObjectId, exclusive: bool) -> ObjectId {
    let hash = blake3::hash(&id.to_bytes());
    let mut low = [0; 8];
    low.copy_from_slice(&hash.as_bytes()[..8]);
    let low = u128::from(u64::from_le_bytes(low)) & !EXCLUSIVE;
    ObjectId(LOCK_KEY_PREFIX | low | if exclusive { EXCLUSIVE } else { 0 })
}

/// Reports whether an id belongs to a lock lease.
pub(super) fn is_lock_key(id: ObjectId) -> bool {
    id.0 >> 64 == LOCK_KEY_PREFIX >> 64
}

fn exclude(one: ObjectId, other: ObjectId) -> bool {
    one.0 & !EXCLUSIVE == other.0 & !EXCLUSIVE && (one.0 | other.0) & EXCLUSIVE != 0
}

impl Leases {
    /// Requests a lock lease on a file. `None` if this node is not connected or has too many. The answer is dropped if the
    /// connection is lost meanwhile; a lease whose requester no longer waits is released.
    pub fn request_lock(&self, num: u64, exclusive: bool) -> Option<oneshot::Receiver<LockAnswer>> {
        let id = lock_key(self.inner.id(num)?, exclusive);
        let mut state = self.inner.state.lock();
        if !state.is_valid() || state.lock_leases.len() >= MAX_LOCK_LEASES {
            return None;
        }
        let (requester, answer) = oneshot::channel();
        state
            .lock_leases
            .insert(rand::random(), LockLease { lock_key: id, requested: false, requester: Some(requester) });
        drop(state);
        self.inner.wake.notify_all();
        Some(answer)
    }

    /// Releases a lock lease.
    pub fn release(&self, grant: LockGrant) {
        self.inner.state.lock().release_lock(grant.lease);
        self.inner.wake.notify_all();
    }

    /// Reports whether a lock lease is still valid: the session has not ended since it was granted.
    pub fn is_held(&self, grant: LockGrant) -> bool {
        let state = self.inner.state.lock();
        state.is_valid() && state.lock_leases.contains_key(&grant.lease)
    }

    /// Reports whether a peer is known to hold a lock lease that conflicts with one on a file.
    pub fn is_locked_by_peer(&self, num: u64, exclusive: bool) -> bool {
        let Some(id) = self.inner.id(num) else { return false };
        self.inner.state.lock().conflicts(lock_key(id, exclusive))
    }
}

impl Inner {
    /// Grants or rejects the requested lock leases after the store replied.
    pub(super) fn resolve_lock_requests(state: &mut LeaseState, requested: &[(u64, ObjectId)]) {
        for (lease, _) in requested {
            let Some((lock_key, requester)) = state.lock_leases.get_mut(lease).map(|lease| {
                lease.requested = true;
                (lease.lock_key, lease.requester.take())
            }) else {
                continue;
            };
            let Some(requester) = requester else { continue };
            let grant = LockGrant { lease: *lease, exclusive: lock_key.0 & EXCLUSIVE != 0 };
            let is_granted = if state.conflicts(lock_key) {
                let (waker, released) = oneshot::channel();
                state.lock_waiters.push(waker);
                requester.send(LockAnswer::Busy(released)).ok();
                false
            } else {
                // A task that was interrupted takes no lease.
                requester.send(LockAnswer::Granted(grant)).is_ok()
            };
            if !is_granted {
                state.release_lock(*lease);
            }
        }
    }
}

impl LeaseState {
    fn conflicts(&self, key: ObjectId) -> bool {
        self.peer_lock_leases.values().any(|peer_lease| exclude(*peer_lease, key))
    }

    fn release_lock(&mut self, lease: u64) {
        if self.lock_leases.remove(&lease).is_some_and(|lease| lease.requested) {
            self.to_release.push((lease, Seq(0)));
        }
    }

    /// Processes the start or end of a peer's lock lease.
    pub(super) fn apply_lock_event(&mut self, lease: u64, key: ObjectId, ended: bool) {
        if !ended {
            self.peer_lock_leases.insert(lease, key);
        } else if self.peer_lock_leases.remove(&lease).is_some() {
            for waiter in self.lock_waiters.drain(..) {
                waiter.send(()).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_exclude_each_other_but_shared_ones() {
        let (one, other) = (ObjectId(1 << 100 | 6), ObjectId(1 << 100 | 7));
        let (shared, exclusive) = (lock_key(one, false), lock_key(one, true));
        assert!(
            is_lock_key(shared)
                && is_lock_key(exclusive)
                && !is_lock_key(one)
                && !is_lock_key(ObjectId::ROOT)
        );
        assert!(exclude(shared, exclusive) && exclude(exclusive, shared) && exclude(exclusive, exclusive));
        assert!(!exclude(shared, shared));
        assert!(!exclude(exclusive, lock_key(other, true)));
    }
}
