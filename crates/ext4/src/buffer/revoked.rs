//! Blocks that the running transaction freed, and that held metadata.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

/// The blocks. How many there are is known without a lock: every handle asks, and there are hardly ever any.
#[derive(Default)]
pub(super) struct Revoked {
    blocks: Mutex<HashSet<u64>>,
    count: AtomicU32,
}

impl Revoked {
    pub(super) fn len(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    pub(super) fn insert(&self, number: u64) {
        let mut blocks = self.blocks.lock();
        blocks.insert(number);
        self.count.store(blocks.len() as u32, Ordering::SeqCst);
    }

    /// The block is one of metadata again. Who revoked it in this transaction did so before it could be taken.
    pub(super) fn remove(&self, number: u64) {
        if self.len() > 0 {
            let mut blocks = self.blocks.lock();
            blocks.remove(&number);
            self.count.store(blocks.len() as u32, Ordering::SeqCst);
        }
    }

    /// All of them, for the commit.
    pub(super) fn take(&self) -> HashSet<u64> {
        let mut blocks = self.blocks.lock();
        self.count.store(0, Ordering::SeqCst);
        std::mem::take(&mut blocks)
    }
}
