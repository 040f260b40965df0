//! A part of a transaction: what is changed through one handle is on the device as a whole, or not at all.

use std::sync::Arc;

use super::{BlockKind, MetadataCache, Tid, Writer};
use crate::error::{Error, Result};

/// The right to change metadata until it is dropped. A handle must not be held while waiting for an inode's lock or for
/// a commit. Who changed anything through it says when that is [complete](Self::complete); one that is dropped before, because
/// something failed half way, aborts, so that no half of an operation is ever committed.
pub(crate) struct Handle<'a> {
    pub(super) store: &'a MetadataCache,
    pub(super) writer: &'a Writer,
    pub(super) credits: u32,
    /// Something was changed through it that is not whole yet.
    pub(super) incomplete: bool,
    /// Blocks changed through it, to see that it has as many credits.
    #[cfg(debug_assertions)]
    pub(super) blocks: std::collections::HashSet<u64>,
}

impl<'a> Handle<'a> {
    /// The store that this handle changes.
    pub(crate) fn store(&self) -> &'a MetadataCache {
        self.store
    }

    /// The transaction that it is part of.
    pub(crate) fn tid(&self) -> Tid {
        self.writer.gate.running()
    }

    /// Changes a block, which `verify` accepts as what `seal` says; its sum is filled in. `change` must not ask the
    /// store for anything, and where it fails it must have left the bytes as they were.
    pub(crate) fn change<R>(
        &mut self,
        number: u64,
        seal: BlockKind,
        verify: impl Fn(&[u8]) -> Result<()>,
        change: impl FnOnce(&mut [u8]) -> Result<R>,
    ) -> Result<R> {
        let mut change = Some(change);
        loop {
            let (geometry, triggers) = (&self.store.geometry, &self.writer.triggers);
            let changed = self.store.cache.change(number, seal, |bytes| {
                let result = (change.take().expect("called once"))(bytes)?;
                seal.fill_checksum(triggers, geometry, number, bytes);
                Ok(result)
            });
            #[cfg(debug_assertions)]
            self.count(number);
            if let Some(result) = changed {
                return self.checked(result);
            }
            // Not in memory, or not as this; and it may be dropped again before the next look.
            if let Err(error) = self.store.get(number, seal, &verify) {
                return self.checked(Err(error));
            }
        }
    }

    /// What is promised at the beginning must be enough: transactions are cut to fit the journal by it.
    #[cfg(debug_assertions)]
    fn count(&mut self, number: u64) {
        self.blocks.insert(number);
        let (changed, credits) = (self.blocks.len(), self.credits as usize);
        assert!(changed <= credits, "a handle with {credits} credits changes its block {changed}");
    }

    /// What was changed up to here is whole: the operation is done, or what it had done was undone.
    pub(crate) fn complete(&mut self) {
        self.incomplete = false;
    }

    /// Notes a change; or, at once where an operation is half done, why there will be no more.
    fn checked<R>(&mut self, result: Result<R>) -> Result<R> {
        match &result {
            Err(error @ (Error::Corrupt(_) | Error::Io(_))) if self.incomplete => {
                self.store.abort_from_outside(self.writer, error);
            }
            Err(_) => {}
            Ok(_) => self.incomplete = true,
        }
        result
    }

    /// A block that is new: begins as zeros, filled by `fill`, its sum filled in.
    pub(crate) fn create(
        &mut self,
        number: u64,
        seal: BlockKind,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let mut bytes = vec![0; self.store.geometry.block_size as usize];
        fill(&mut bytes);
        seal.fill_checksum(&self.writer.triggers, &self.store.geometry, number, &mut bytes);
        #[cfg(debug_assertions)]
        self.count(number);
        self.writer.revoked.remove(number);
        self.incomplete = true;
        self.store.cache.create(number, Arc::from(bytes), seal);
        Ok(())
    }

    /// These blocks are nobody's once this is committed.
    pub(crate) fn freed(&mut self, start: u64, count: u64) {
        self.writer.freed.add(start, count);
    }

    /// The block holds metadata no more: dropped from memory, and revoked in the log.
    pub(crate) fn forget(&mut self, number: u64) {
        self.incomplete = true;
        self.writer.revoked.insert(number);
        self.store.cache.forget(number);
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if self.incomplete {
            self.store.abort_from_outside(self.writer, &"an operation failed half way");
        }
        self.writer.gate.leave(self.credits);
    }
}
