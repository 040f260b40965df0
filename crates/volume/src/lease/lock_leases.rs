//! Lock leases: leases that exclude each other, for file locks that hold on all connected nodes.
//!
//! A lock lease needs no acknowledgement of the peers. The lease table orders all leases, and the reply to a request includes
//! those before it: if a conflicting lock lease is among them, the new one is released at once. So no two nodes ever hold
//! conflicting lock leases, as long as their sessions live.

use futures::channel::oneshot;

use super::lease_types::{LockAnswer, LockGrant, LockLease};
use super::state::LeaseState;
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
        let (asker, answer) = oneshot::channel();
        state
            .lock_leases
            .insert(rand::random(), LockLease { lock_key: id, requested: false, requester: Some(asker) });
        drop(state);
        self.inner.wake.notify_all();
        Some(answer)
    }

    /// Gives one back.
    pub fn release(&self, held: LockGrant) {
        self.inner.state.lock().release_lock(held.lease);
        self.inner.wake.notify_all();
    }

    /// Reports whether a lock lease is still valid: this node has been connected ever since.
    pub fn is_held(&self, held: LockGrant) -> bool {
        let state = self.inner.state.lock();
        state.is_valid() && state.lock_leases.contains_key(&held.lease)
    }

    /// Reports whether a peer is known to hold a lock lease that conflicts with one on a file.
    pub fn is_locked_by_peer(&self, num: u64, exclusive: bool) -> bool {
        let Some(id) = self.inner.id(num) else { return false };
        self.inner.state.lock().conflicts(lock_key(id, exclusive))
    }
}

impl Inner {
    /// The store answered: what became of those claims that it was told of?
    pub(super) fn resolve_lock_requests(state: &mut LeaseState, requested: &[(u64, ObjectId)]) {
        for (lease, _) in requested {
            let Some((on, asker)) = state.lock_leases.get_mut(lease).map(|claim| {
                claim.requested = true;
                (claim.lock_key, claim.requester.take())
            }) else {
                continue;
            };
            let Some(asker) = asker else { continue };
            let held = LockGrant { lease: *lease, exclusive: on.0 & EXCLUSIVE != 0 };
            let kept = if state.conflicts(on) {
                let (free, freed) = oneshot::channel();
                state.lock_waiters.push(free);
                asker.send(LockAnswer::Busy(freed)).ok();
                false
            } else {
                // A task that was interrupted takes no lease.
                asker.send(LockAnswer::Granted(held)).is_ok()
            };
            if !kept {
                state.release_lock(*lease);
            }
        }
    }
}

impl LeaseState {
    fn conflicts(&self, on: ObjectId) -> bool {
        self.peer_lock_leases.values().any(|foreign| exclude(*foreign, on))
    }

    fn release_lock(&mut self, lease: u64) {
        if self.lock_leases.remove(&lease).is_some_and(|claim| claim.requested) {
            self.to_release.push((lease, Seq(0)));
        }
    }

    /// Processes the start or end of a peer's lock lease.
    pub(super) fn apply_lock_event(&mut self, lease: u64, on: ObjectId, ended: bool) {
        if !ended {
            self.peer_lock_leases.insert(lease, on);
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
