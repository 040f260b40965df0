//! One virtqueue of a guest's device. Chains are taken from its available ring and returned to its used ring; stopping the queue
//! waits for the chains in progress. Where the emulator or a guardian keeps an [inflight](super::inflight) region, the chains in
//! progress are recorded there, and those of an earlier daemon are taken first.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};
use vhost_user_backend::{VringRwLock, VringStateMutGuard, VringT};
use virtio_queue::{QueueOwnedT, QueueT};
use vm_memory::{GuestAddress, GuestAddressSpace};

use super::chain::Chain;
use super::crash_point::{Step, crash_point};
use super::descriptors::Descriptors;
use super::inflight::InflightQueue;
use super::memory::{Guest, Mapped};

/// A virtqueue, and the number of its chains in progress.
#[derive(Default)]
pub(crate) struct Queue {
    ring: Mutex<Option<Ring>>,
    /// Locked after the ring.
    tracking: Mutex<Tracking>,
    under_way: Mutex<usize>,
    idle: Condvar,
}

type Ring = VringRwLock<Guest>;
type RingState<'a> = <Ring as VringStateMutGuard<'a, Guest>>::G;

/// The record of the chains in progress.
#[derive(Default)]
struct Tracking {
    inflight: Option<InflightQueue>,
    /// Heads of the chains that an earlier daemon took and did not return.
    resubmitted: VecDeque<u16>,
}

/// A chain that was taken: its head, where its descriptors are, and whether an earlier daemon had taken it.
struct Taken {
    head: u16,
    table: GuestAddress,
    entries: u16,
    more: bool,
    is_resubmitted: bool,
}

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

    /// Begins to record the chains of the ring, which is about to be started. Returns whether an earlier daemon served it: then
    /// there may be chains to take although nothing announces them, and replies of which the guest was not notified.
    pub(super) fn track(&self, ring: &Ring, inflight: Option<InflightQueue>) -> bool {
        self.bind(ring);
        let used = ring.queue_used_idx().ok();
        let mut state = ring.get_mut();
        let mut tracking = self.tracking.lock();
        *tracking = Tracking { inflight, resubmitted: VecDeque::new() };
        let recovered = tracking.inflight.as_mut().and_then(|inflight| inflight.begin(used?));
        let Some(recovered) = recovered else { return false };
        let queue = state.get_queue_mut();
        queue.set_next_used(recovered.next_used);
        queue.set_next_avail(recovered.next_available);
        if !recovered.heads.is_empty() {
            tracing::info!(
                requests = recovered.heads.len(),
                "requests of an earlier daemon are executed again"
            );
        }
        tracking.resubmitted = recovered.heads.into();
        true
    }

    /// Ends the record: the memory belongs to the emulator again.
    pub(super) fn untrack(&self) {
        *self.tracking.lock() = Tracking::default();
    }

    /// Takes the next chain, if there is one; the flag reports whether another one follows it. An invalid chain is returned at
    /// once.
    pub(super) fn take(&self, guest: &Guest) -> Option<(Chain, bool)> {
        let ring = self.ring()?;
        loop {
            let memory = guest.memory();
            let taken = {
                let mut state = ring.get_mut();
                let taken = self.take_head(&mut state, &memory)?;
                *self.under_way.lock() += 1;
                taken
            };
            let Taken { head, table, entries, more, is_resubmitted } = taken;
            crash_point(Step::Taken);
            let descriptors = Descriptors::new(memory.clone(), table, entries, head);
            match Chain::new(memory, head, descriptors, is_resubmitted) {
                Ok(chain) => return Some((chain, more)),
                Err(errno) => {
                    tracing::warn!(%errno, "malformed descriptor chain returned to the guest");
                    self.return_chain(head, 0);
                }
            }
        }
    }

    /// Takes the next head.
    fn take_head(&self, state: &mut RingState<'_>, memory: &Mapped) -> Option<Taken> {
        let queue = state.get_queue_mut();
        let mut tracking = self.tracking.lock();
        let is_resubmitted = !tracking.resubmitted.is_empty();
        let head = match tracking.resubmitted.pop_front() {
            // Even of a ring that is being stopped: its index shows them as taken.
            Some(head) => head,
            // A stopped ring must not be touched: the guest may have reused its memory.
            None if !queue.ready() => return None,
            None => queue.iter(memory.clone()).ok()?.next()?.head_index(),
        };
        let next = queue.next_avail();
        let more = !tracking.resubmitted.is_empty()
            || queue
                .avail_idx(&**memory, std::sync::atomic::Ordering::Acquire)
                .is_ok_and(|end| end.0 != next);
        if let (false, Some(inflight)) = (is_resubmitted, &mut tracking.inflight) {
            if !inflight.take(head) {
                tracing::warn!(head, "the guest submitted a descriptor chain twice");
            }
        }
        let (table, entries) = (GuestAddress(queue.desc_table()), queue.size());
        Some(Taken { head, table, entries, more, is_resubmitted })
    }

    /// Returns a chain to the guest, with the length of the reply.
    pub(super) fn return_chain(&self, head: u16, length: u32) {
        if let Some(ring) = self.ring() {
            let mut state = ring.get_mut();
            match self.add_used(&mut state, head, length) {
                Ok(()) if state.needs_notification().unwrap_or(true) => {
                    crash_point(Step::Notify);
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

    /// The record changes before and after the used ring, so that whatever a later daemon finds shows which chains are in the
    /// ring.
    fn add_used(&self, state: &mut RingState<'_>, head: u16, length: u32) -> Result<(), virtio_queue::Error> {
        let tracking = self.tracking.lock();
        if let Some(inflight) = &tracking.inflight {
            inflight.begin_return(head);
        }
        crash_point(Step::Replied);
        state.add_used(head, length)?;
        crash_point(Step::Used);
        if let Some(inflight) = &tracking.inflight {
            inflight.finish_return(head, state.get_queue().next_used());
        }
        Ok(())
    }

    /// Notifies the guest of replies that it may not know.
    pub(super) fn notify(&self) {
        if let Some(Err(error)) = self.ring().map(|ring| ring.signal_used_queue()) {
            tracing::warn!(%error, "cannot notify the guest of replies");
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

    /// Waits until no chain is in progress. The ring must not be started again before [`track`](Self::track).
    pub(super) fn drain(&self) {
        let mut under_way = self.under_way.lock();
        while *under_way > 0 {
            self.idle.wait(&mut under_way);
        }
    }
}
