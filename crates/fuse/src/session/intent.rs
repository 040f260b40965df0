//! The intent record of one request: makes operations idempotent across a takeover, see [`takeover`](crate::takeover).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use shunt_fuse_abi::InHeader;

use crate::takeover::{BegunOperation, IntentData, Takeover};

const NO_SLOT: usize = usize::MAX;

/// The record of a request while it is in flight. Dropping it, after the reply was sent, clears the record.
#[derive(Debug)]
pub(crate) struct Intent {
    takeover: Option<Arc<Takeover>>,
    unique: u64,
    slot: AtomicUsize,
    begun: Option<BegunOperation>,
}

impl Intent {
    pub(crate) fn new(takeover: Option<&Arc<Takeover>>, header: &InHeader) -> Self {
        let unique = header.original_id();
        let inherited =
            takeover.filter(|_| header.is_resend()).and_then(|takeover| takeover.inherit_intent(unique));
        let (slot, begun) = inherited.map_or((NO_SLOT, None), |(slot, begun)| (slot, Some(begun)));
        Self { takeover: takeover.cloned(), unique, slot: AtomicUsize::new(slot), begun }
    }

    pub(crate) fn begun(&self) -> Option<&BegunOperation> {
        self.begun.as_ref()
    }

    pub(crate) fn begin(&self, before: impl FnOnce() -> Result<IntentData, Errno>) -> Result<(), Errno> {
        // The state recorded before the first attempt remains valid.
        let (Some(takeover), NO_SLOT) = (&self.takeover, self.slot.load(Ordering::Relaxed)) else {
            return Ok(());
        };
        if let Some(slot) = takeover.begin_intent(self.unique, before()?) {
            self.slot.store(slot, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Records the outcome, right before the reply.
    pub(crate) fn end(&self, result: Result<(), Errno>) {
        let slot = self.slot.load(Ordering::Relaxed);
        if let (Some(takeover), true) = (&self.takeover, slot != NO_SLOT) {
            takeover.end_intent(slot, result);
        }
    }
}

impl Drop for Intent {
    fn drop(&mut self) {
        let slot = *self.slot.get_mut();
        if let (Some(takeover), true) = (&self.takeover, slot != NO_SLOT) {
            takeover.clear_intent(slot);
        }
    }
}
