//! Keeping the number of inodes in bounds.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use shunt_fuse::Handle;

use crate::lower::Lower;

/// Nodes asked back in one notification.
const BATCH: u64 = 1024;

/// Asks the kernel for inodes back once it holds more than it should, and again as those come or still more are held.
#[derive(Debug)]
pub(crate) struct Pruner {
    most: Option<u64>,
    /// The kernel is asked again when the count reaches this ...
    above: AtomicU64,
    /// ... or falls to this: enough of what was asked for last has come back.
    below: AtomicU64,
    session: Mutex<Option<Handle>>,
}

impl Pruner {
    pub(crate) fn new(most: Option<u64>) -> Self {
        let above = AtomicU64::new(most.unwrap_or(u64::MAX));
        Self { most, above, below: AtomicU64::new(0), session: Mutex::new(None) }
    }

    /// The bound in force.
    pub(crate) fn most(&self) -> Option<u64> {
        self.most
    }

    /// A session began: it is the one to ask.
    pub(crate) fn start(&self, session: &Handle) {
        if self.most.is_some() {
            *self.session.lock() = Some(session.clone());
        }
    }

    /// The session ended.
    pub(crate) fn end(&self) {
        *self.session.lock() = None;
    }

    /// Called after a node was handed out or given back. The notification goes out after the answer.
    pub(crate) fn check(&self, lower: &Lower) {
        let Some(most) = self.most else { return };
        let count = lower.node_count();
        let above = self.above.load(Ordering::Relaxed);
        if count <= most {
            // Back in bounds: the next excess is dealt with at once.
            if above != most {
                self.above.store(most, Ordering::Relaxed);
                self.below.store(0, Ordering::Relaxed);
            }
            return;
        }
        if count < above && count > self.below.load(Ordering::Relaxed) {
            return;
        }
        let batch = (count - most + most / 16).min(BATCH);
        // Inodes in use do not come back: without a reason of either kind nothing more is asked.
        let step = count + (BATCH / 4).min(most / 16 + 1);
        if self.above.compare_exchange(above, step, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        self.below.store(count - batch / 2, Ordering::Relaxed);
        let session = self.session.lock().clone();
        if let Some(session) = session {
            let cold = lower.cold_nodes(batch as usize);
            tracing::debug!(count, most, asked = cold.len(), "asking for inodes back");
            session.caches().prune(&cold);
        }
    }
}
