//! Claims: leases that exclude each other, for locks that hold on all connected nodes.
//!
//! Nobody waits for the others to have seen one. The board puts all leases in one order, and whoever takes one is told
//! those before it in the same answer: a claim that another one stands in the way of is given back at once. So no two nodes
//! ever hold claims that exclude each other, as long as their sessions live.

use futures::channel::oneshot;

use super::lease_types::{LockAnswer, LockGrant, LockLease};
use super::state::LeaseState;
use super::{Inner, Leases};
use crate::id::{ObjectId, Seq};

/// The upper half of what stands for a file on the board, where its claims are meant. No object has it: theirs are random.
const LOCK_KEY_PREFIX: u128 = 0x5348_554e_544c_4f43 << 64;
/// In the lower half: nobody else may have a claim at all.
const EXCLUSIVE: u128 = 1;

/// Claims of a node at a time, with those on their way: with its other leases, fewer than the board takes.
const MAX_LOCK_LEASES: usize = 512;

fn lock_key(id: ObjectId, exclusive: bool) -> ObjectId {
    let hash = blake3::hash(&id.to_bytes());
    let mut low = [0; 8];
    low.copy_from_slice(&hash.as_bytes()[..8]);
    let low = u128::from(u64::from_le_bytes(low)) & !EXCLUSIVE;
    ObjectId(LOCK_KEY_PREFIX | low | if exclusive { EXCLUSIVE } else { 0 })
}

/// Whether a lease on this is a claim.
pub(super) fn is_lock_key(id: ObjectId) -> bool {
    id.0 >> 64 == LOCK_KEY_PREFIX >> 64
}

fn exclude(one: ObjectId, other: ObjectId) -> bool {
    one.0 & !EXCLUSIVE == other.0 & !EXCLUSIVE && (one.0 | other.0) & EXCLUSIVE != 0
}

impl Leases {
    /// Asks for a claim on a file. `None`: this node is not connected, or has too many. The answer does not come where the
    /// connection is lost meanwhile; one that nobody waits for any more is given back.
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

    /// Whether it holds still: this node was not cut off since.
    pub fn is_held(&self, held: LockGrant) -> bool {
        let state = self.inner.state.lock();
        state.is_valid() && state.lock_leases.contains_key(&held.lease)
    }

    /// Whether a claim of somebody else stands in the way of one, as far as this node has heard.
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
                // Who was interrupted holds nothing.
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

    /// Hears of a claim of somebody else.
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
