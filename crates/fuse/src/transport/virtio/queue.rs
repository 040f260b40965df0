//! One queue of a guest's device.

use parking_lot::{Condvar, Mutex};
use vhost_user_backend::{VringRwLock, VringT};
use virtio_queue::{QueueOwnedT, QueueT};
use vm_memory::GuestAddressSpace;

use super::chain::Chain;
use super::memory::Guest;

/// One queue, and how many of its chains are being worked on.
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
    /// Says which ring of the device it is.
    pub(super) fn bind(&self, ring: &Ring) {
        self.ring.lock().get_or_insert_with(|| ring.clone());
    }

    fn ring(&self) -> Option<Ring> {
        self.ring.lock().clone()
    }

    /// Takes the next chain, if there is one; the flag tells whether there is another one behind it. A chain that makes
    /// no sense is given back at once.
    pub(super) fn take(&self, guest: &Guest) -> Option<(Chain, bool)> {
        let ring = self.ring()?;
        loop {
            let memory = guest.memory();
            let (descriptors, more) = {
                let mut state = ring.get_mut();
                let queue = state.get_queue_mut();
                // A ring that was stopped is not touched any more: the guest may use its memory for something else.
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
                    tracing::warn!(%errno, "a chain of descriptors that makes no sense is given back");
                    self.give_back(head, 0);
                }
            }
        }
    }

    /// Gives a chain back to the guest, with so many bytes of a reply.
    pub(super) fn give_back(&self, head: u16, length: u32) {
        if let Some(ring) = self.ring() {
            let mut state = ring.get_mut();
            if let Err(error) = state.add_used(head, length) {
                tracing::warn!(%error, "a chain of descriptors cannot be given back");
            } else if state.needs_notification().unwrap_or(true)
                && let Err(error) = state.signal_used_queue()
            {
                tracing::warn!(%error, "the guest cannot be told of a reply");
            }
        }
        let mut under_way = self.under_way.lock();
        *under_way -= 1;
        if *under_way == 0 {
            self.idle.notify_all();
        }
    }

    /// Says whether the guest is to tell of further chains. Tells whether some came before it knew.
    pub(super) fn set_kicks(&self, wanted: bool) -> bool {
        let Some(ring) = self.ring() else { return false };
        let mut state = ring.get_mut();
        if !state.get_queue().ready() {
            return false;
        }
        match wanted {
            true => state.enable_notification().unwrap_or(false),
            false => state.disable_notification().is_err(),
        }
    }

    /// Waits until no chain is being worked on.
    pub(super) fn drain(&self) {
        let mut under_way = self.under_way.lock();
        while *under_way > 0 {
            self.idle.wait(&mut under_way);
        }
    }
}
