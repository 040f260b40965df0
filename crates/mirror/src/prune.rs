//! Limits the number of inodes that the kernel caches, by notifications that ask it to drop the least recently used
//! ones.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use shunt_fuse::Handle;

use crate::lower::Lower;

/// Nodes per prune notification.
const BATCH: u64 = 1024;

/// Asks the kernel to drop inodes once it holds more than the limit, and again when enough were dropped or more were
/// added.
#[derive(Debug)]
pub(crate) struct Pruner {
    most: Option<u64>,
    /// The kernel is asked again when the count rises to this value ...
    above: AtomicU64,
    /// ... or falls to this one: the kernel dropped enough of the last batch.
    below: AtomicU64,
    session: Mutex<Option<Handle>>,
}

impl Pruner {
    pub(crate) fn new(most: Option<u64>) -> Self {
        let above = AtomicU64::new(most.unwrap_or(u64::MAX));
        Self { most, above, below: AtomicU64::new(0), session: Mutex::new(None) }
    }

    /// The configured limit.
    pub(crate) fn most(&self) -> Option<u64> {
        self.most
    }

    /// Sets the session whose kernel caches are pruned.
    pub(crate) fn start(&self, session: &Handle) {
        if self.most.is_some() {
            *self.session.lock() = Some(session.clone());
        }
    }

    /// Forgets the session when it ends.
    pub(crate) fn end(&self) {
        let session = self.session.lock().take();
        drop(session);
    }

    /// Called after a node was added or forgotten. The notification is sent after the reply.
    pub(crate) fn check(&self, lower: &Lower) {
        let Some(most) = self.most else { return };
        let count = lower.node_count();
        let above = self.above.load(Ordering::Relaxed);
        if count <= most {
            // Within the limit again: the next excess triggers a batch at once.
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
        // The kernel does not drop inodes in use. No new batch is sent until the count reaches one of the two
        // thresholds.
        let step = count + (BATCH / 4).min(most / 16 + 1);
        if self.above.compare_exchange(above, step, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        self.below.store(count - batch / 2, Ordering::Relaxed);
        let session = self.session.lock().clone();
        if let Some(session) = session {
            let cold = lower.cold_nodes(batch as usize);
            tracing::debug!(count, most, asked = cold.len(), "asking the kernel to forget inodes");
            session.caches().prune(&cold);
        }
    }
}
