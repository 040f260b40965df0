//! Limits the number of inodes that the kernel caches, by notifications that ask it to drop the least recently used
//! ones.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use shunt_fuse::Handle;

use crate::lower::Lower;

/// Maximum number of nodes per prune notification.
const MAX_PRUNE_BATCH: u64 = 1024;

/// Asks the kernel to drop inodes once it holds more than the limit, and again when enough were dropped or more were
/// added.
#[derive(Debug)]
pub(crate) struct Pruner {
    limit: Option<u64>,
    /// Count at which the next notification is sent.
    above: AtomicU64,
    /// Count at or below which the next notification is sent: the kernel dropped enough of the last batch.
    below: AtomicU64,
    session: Mutex<Option<Handle>>,
}

impl Pruner {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        let above = AtomicU64::new(limit.unwrap_or(u64::MAX));
        Self { limit, above, below: AtomicU64::new(0), session: Mutex::new(None) }
    }

    /// The configured limit.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Sets the session whose kernel caches are pruned.
    pub(crate) fn start(&self, session: &Handle) {
        if self.limit.is_some() {
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
        let Some(limit) = self.limit else { return };
        let count = lower.node_count();
        let above = self.above.load(Ordering::Relaxed);
        if count <= limit {
            // Within the limit again: the next excess triggers a batch at once.
            if above != limit {
                self.above.store(limit, Ordering::Relaxed);
                self.below.store(0, Ordering::Relaxed);
            }
            return;
        }
        if count < above && count > self.below.load(Ordering::Relaxed) {
            return;
        }
        let batch = (count - limit + limit / 16).min(MAX_PRUNE_BATCH);
        // The kernel does not drop inodes in use. No new batch is sent until the count reaches one of the two
        // thresholds.
        let step = count + (MAX_PRUNE_BATCH / 4).min(limit / 16 + 1);
        if self.above.compare_exchange(above, step, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        self.below.store(count - batch / 2, Ordering::Relaxed);
        let session = self.session.lock().clone();
        if let Some(session) = session {
            let cold = lower.cold_nodes(batch as usize);
            tracing::debug!(count, limit, requested = cold.len(), "the kernel is asked to drop inodes");
            session.caches().prune(&cold);
        }
    }
}
