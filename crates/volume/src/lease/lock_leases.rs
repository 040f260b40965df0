//! Lock leases: leases that exclude each other, for file locks that hold on all connected nodes.
//!
//! A lock lease needs no acknowledgement of the peers. The lease table orders all leases, and the reply to a request includes
//! those before it: if a conflicting lock lease is among them, the new one is released at once. So no two nodes ever hold
//! conflicting lock leases, as long as their sessions live.

use futures::channel::oneshot;

use super::lease_types::{LockAnswer, LockGrant, LockLease};
use super::state::State;
use super::{Inner, Leases};
use crate::id::{ObjectId, Seq};

/// The upper half of the ids that represent files in lock leases. No object has it, since object ids are random.
const MARK: u128 = 0x5348_554e_544c_4f43 << 64;
/// Set in the lower half of the id of an exclusive lock lease.
const EXCLUSIVE: u128 = 1;

/// Maximum number of lock leases of a node, including requested ones: with its other leases, fewer than the lease table
/// takes.
const MOST: usize = 512;

fn stands_for(id: ObjectId, exclusive: bool) -> ObjectId {
    let hash = blake3::hash(&id.to_bytes());
    let mut low = [0; 8];
    low.copy_from_slice(&hash.as_bytes()[..8]);
    let low = u128::from(u64::from_le_bytes(low)) & !EXCLUSIVE;
    ObjectId(MARK | low | if exclusive { EXCLUSIVE } else { 0 })
}

/// Reports whether an id belongs to a lock lease.
pub(super) fn is_claim(id: ObjectId) -> bool {
    id.0 >> 64 == MARK >> 64
}

fn exclude(one: ObjectId, other: ObjectId) -> bool {
    one.0 & !EXCLUSIVE == other.0 & !EXCLUSIVE && (one.0 | other.0) & EXCLUSIVE != 0
}

impl Leases {
    /// Requests a lock lease on a file. `None` if this node is not connected or has too many. The answer is dropped if the
    /// connection is lost meanwhile; a lease whose requester no longer waits is released.
    pub fn claim(&self, num: u64, exclusive: bool) -> Option<oneshot::Receiver<LockAnswer>> {
        let id = stands_for(self.inner.id(num)?, exclusive);
        let mut state = self.inner.state.lock();
        if !state.is_valid() || state.claims.len() >= MOST {
            return None;
        }
        let (asker, answer) = oneshot::channel();
        state.claims.insert(rand::random(), LockLease { on: id, said: false, asker: Some(asker) });
        drop(state);
        self.inner.wake.notify_all();
        Some(answer)
    }

    /// Gives one back.
    pub fn release(&self, held: LockGrant) {
        self.inner.state.lock().give_back(held.lease);
        self.inner.wake.notify_all();
    }

    /// Reports whether a lock lease is still valid: this node has been connected ever since.
    pub fn holds(&self, held: LockGrant) -> bool {
        let state = self.inner.state.lock();
        state.is_valid() && state.claims.contains_key(&held.lease)
    }

    /// Reports whether a peer is known to hold a lock lease that conflicts with one on a file.
    pub fn is_claimed(&self, num: u64, exclusive: bool) -> bool {
        let Some(id) = self.inner.id(num) else { return false };
        self.inner.state.lock().is_in_the_way(stands_for(id, exclusive))
    }
}

impl Inner {
    /// Decides the lock leases that the store's reply covers: granted, or busy and released.
    pub(super) fn judge_claims(state: &mut State, told: &[(u64, ObjectId)]) {
        for (lease, _) in told {
            let Some((on, asker)) = state.claims.get_mut(lease).map(|claim| {
                claim.said = true;
                (claim.on, claim.asker.take())
            }) else {
                continue;
            };
            let Some(asker) = asker else { continue };
            let held = LockGrant { lease: *lease, exclusive: on.0 & EXCLUSIVE != 0 };
            let kept = if state.is_in_the_way(on) {
                let (free, freed) = oneshot::channel();
                state.claim_waiters.push(free);
                asker.send(LockAnswer::Busy(freed)).ok();
                false
            } else {
                // A task that was interrupted takes no lease.
                asker.send(LockAnswer::Granted(held)).is_ok()
            };
            if !kept {
                state.give_back(*lease);
            }
        }
    }
}

impl State {
    fn is_in_the_way(&self, on: ObjectId) -> bool {
        self.foreign_claims.values().any(|foreign| exclude(*foreign, on))
    }

    fn give_back(&mut self, lease: u64) {
        if self.claims.remove(&lease).is_some_and(|claim| claim.said) {
            self.to_free.push((lease, Seq(0)));
        }
    }

    /// Processes the start or end of a peer's lock lease.
    pub(super) fn hear_claim(&mut self, lease: u64, on: ObjectId, ended: bool) {
        if !ended {
            self.foreign_claims.insert(lease, on);
        } else if self.foreign_claims.remove(&lease).is_some() {
            for waiter in self.claim_waiters.drain(..) {
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
        let (shared, exclusive) = (stands_for(one, false), stands_for(one, true));
        assert!(is_claim(shared) && is_claim(exclusive) && !is_claim(one) && !is_claim(ObjectId::ROOT));
        assert!(exclude(shared, exclusive) && exclude(exclusive, shared) && exclude(exclusive, exclusive));
        assert!(!exclude(shared, shared));
        assert!(!exclude(exclusive, stands_for(other, true)));
    }
}
