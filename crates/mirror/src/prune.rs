//! Keeping the number of inodes in bounds.

use std::sync::atomic::{AtomicU64, Ordering};

use shunt_fuse::Handle;

use crate::lower::Lower;

/// Nodes asked back in one notification.
const BATCH: u64 = 1024;

/// Asks the kernel for inodes back once it holds more than it should.
#[derive(Debug)]
pub(crate) struct Pruner {
    most: Option<u64>,
    /// The count at which the kernel is asked next.
    next: AtomicU64,
}

impl Pruner {
    pub(crate) fn new(most: Option<u64>) -> Self {
        Self { most, next: AtomicU64::new(most.unwrap_or(u64::MAX)) }
    }

    /// The bound in force.
    pub(crate) fn most(&self) -> Option<u64> {
        self.most
    }

    /// Called after a node was handed out. The notification goes out after the answer.
    pub(crate) fn check(&self, lower: &Lower, session: &Handle) {
        let Some(most) = self.most else { return };
        let count = lower.node_count();
        let next = self.next.load(Ordering::Relaxed);
        if count <= most {
            // Back in bounds: the next excess is dealt with at once.
            if next != most {
                self.next.store(most, Ordering::Relaxed);
            }
            return;
        }
        // FORGETs take a while, and inodes in use do not come back: another batch only as the count grows on.
        let step = count + (BATCH / 4).min(most / 16 + 1);
        if count < next
            || self.next.compare_exchange(next, step, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let batch = (count - most + most / 16).min(BATCH) as usize;
        let cold = lower.cold_nodes(batch);
        tracing::debug!(count, most, asked = cold.len(), "asking for inodes back");
        session.caches().prune(&cold);
    }
}
