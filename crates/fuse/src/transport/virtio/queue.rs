//! One virtqueue of a guest's device. Chains are taken from its available ring and returned to its used ring; stopping the queue
//! waits for the chains in progress.

use parking_lot::{Condvar, Mutex};
use vhost_user_backend::{VringRwLock, VringT};
use virtio_queue::{QueueOwnedT, QueueT};
use vm_memory::GuestAddressSpace;

use super::chain::Chain;
use super::memory::Guest;

/// A virtqueue, and the number of its chains in progress.
#[derive(Default)]
pub(crate) struct Queue {
    ring: Mutex<Option<Ring>>,
    under_way: Mutex<usize>,
    idle: Condvar,
}

type Ring = VringRwLock<Guest>;

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("under_way", &*self.under_way.lock()).finish_non_exhaustive()
    }
}

impl Queue {
    /// Sets the ring of the device that this queue uses.
    pub(super) fn bind(&self, ring: &Ring) {
        self.ring.lock().get_or_insert_with(|| ring.clone());
    }

    fn ring(&self) -> Option<Ring> {
        self.ring.lock().clone()
    }

    /// Takes the next chain, if there is one; the flag reports whether another one follows it. An invalid chain is returned at
    /// once.
    pub(super) fn take(&self, guest: &Guest) -> Option<(Chain, bool)> {
        let ring = self.ring()?;
        loop {
            let memory = guest.memory();
            let (descriptors, more) = {
                let mut state = ring.get_mut();
                let queue = state.get_queue_mut();
                // A stopped ring must not be touched: the guest may have reused its memory.
                if !queue.ready() {
                    return None;
                }
                let descriptors = queue.iter(memory.clone()).ok()?.next()?;
                let more = queue
                    .avail_idx(&*memory, std::sync::atomic::Ordering::Acquire)
                    .is_ok_and(|end| end.0 != queue.next_avail());
                *self.under_way.lock() += 1;
                (descriptors, more)
            };
            match Chain::new(memory, descriptors) {
                Ok(chain) => return Some((chain, more)),
                Err((head, errno)) => {
                    tracing::warn!(%errno, "malformed descriptor chain returned to the guest");
                    self.return_chain(head, 0);
                }
            }
        }
    }

    /// Returns a chain to the guest, with the length of the reply.
    pub(super) fn return_chain(&self, head: u16, length: u32) {
        if let Some(ring) = self.ring() {
            let mut state = ring.get_mut();
            match state.add_used(head, length) {
                Ok(()) if state.needs_notification().unwrap_or(true) => {
                    if let Err(error) = state.signal_used_queue() {
                        tracing::warn!(%error, "cannot notify the guest of a reply");
                    }
                }
                Ok(()) => {}
                Err(error) => tracing::warn!(%error, "cannot return a descriptor chain to the guest"),
            }
        }
        let mut under_way = self.under_way.lock();
        *under_way -= 1;
        if *under_way == 0 {
            self.idle.notify_all();
        }
    }

    /// Sets whether the guest should send notifications of further chains. Returns whether some were added before that took
    /// effect.
    pub(super) fn set_kicks(&self, enabled: bool) -> bool {
        let Some(ring) = self.ring() else { return false };
        let mut state = ring.get_mut();
        if !state.get_queue().ready() {
            return false;
        }
        match enabled {
            true => state.enable_notification().unwrap_or(false),
            false => state.disable_notification().is_err(),
        }
    }

    /// Waits until no chain is in progress.
    pub(super) fn drain(&self) {
        let mut under_way = self.under_way.lock();
        while *under_way > 0 {
            self.idle.wait(&mut under_way);
        }
    }
}
