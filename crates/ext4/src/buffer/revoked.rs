//! Metadata blocks freed by the running transaction; the commit writes revoke records for them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

/// The set of blocks. Its size is read without a lock: every handle reads it, and the set is nearly always empty.
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

    /// Cancels the revocation of a block that holds metadata again. A revocation in this transaction precedes its reallocation.
    pub(super) fn remove(&self, number: u64) {
        if self.len() > 0 {
            let mut blocks = self.blocks.lock();
            blocks.remove(&number);
            self.count.store(blocks.len() as u32, Ordering::SeqCst);
        }
    }

    /// Takes the whole set for the commit.
    pub(super) fn take(&self) -> HashSet<u64> {
        let mut blocks = self.blocks.lock();
        self.count.store(0, Ordering::SeqCst);
        std::mem::take(&mut blocks)
    }
}
