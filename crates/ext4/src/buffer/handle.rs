//! Handle (`handle_t`): joins one operation to a transaction. All changes made through a handle reach the device atomically.

use std::sync::Arc;

use super::shadow::Turn;
use super::{BlockKind, MetadataCache, Tid, Writer};
use crate::error::{Error, Result};

/// The right to change metadata, until it is dropped. A handle must not be held while waiting for an inode's lock or for a
/// commit. After its changes, an operation must call [`complete`](Self::complete); dropping an incomplete handle aborts the
/// journal, so that no partial operation is ever committed.
pub(crate) struct Handle<'a> {
    pub(super) store: &'a MetadataCache,
    pub(super) writer: &'a Writer,
    pub(super) credits: u32,
    /// Set while changes made through it are incomplete.
    pub(super) incomplete: bool,
    /// Its turn, where changes have shadow copies.
    pub(super) turn: Option<Turn<'a>>,
    /// Blocks changed through it, to check the number of credits.
    #[cfg(debug_assertions)]
    pub(super) blocks: std::collections::HashSet<u64>,
}

impl<'a> Handle<'a> {
    /// Returns the cache whose metadata this handle changes.
    pub(crate) fn store(&self) -> &'a MetadataCache {
        self.store
    }

    /// Returns the transaction that this handle has joined.
    pub(crate) fn tid(&self) -> Tid {
        self.writer.gate.running()
    }

    /// Changes a block that `verify` accepts as a block of kind `kind`, and fills in its checksum. `change` must not access the
    /// cache, and must leave the bytes unmodified if it fails.
    pub(crate) fn change<R>(
        &mut self,
        number: u64,
        kind: BlockKind,
        verify: impl Fn(&[u8]) -> Result<()>,
        change: impl FnOnce(&mut [u8]) -> Result<R>,
    ) -> Result<R> {
        let mut change = Some(change);
        loop {
            let (geometry, triggers) = (&self.store.geometry, &self.writer.triggers);
            let changed = self.store.cache.change(number, kind, |bytes| {
                let result = (change.take().expect("the closure is called once"))(bytes)?;
                kind.fill_checksum(triggers, geometry, number, bytes);
                Ok(result)
            });
            #[cfg(debug_assertions)]
            self.count(number);
            if matches!(changed, Some(Ok(_))) {
                self.touch(number);
            }
            if let Some(result) = changed {
                return self.checked(result);
            }
            // Not cached, or cached as another kind. It may be evicted again before the next attempt.
            if let Err(error) = self.store.get(number, kind, &verify) {
                return self.checked(Err(error));
            }
        }
    }

    /// Asserts that the credits suffice: transactions are sized to fit the journal by them.
    #[cfg(debug_assertions)]
    fn count(&mut self, number: u64) {
        self.blocks.insert(number);
        let (changed, credits) = (self.blocks.len(), self.credits as usize);
        assert!(changed <= credits, "a handle with {credits} credits changes its block {changed}");
    }

    /// Declares the changes made through this handle complete: the operation has succeeded or has been undone.
    pub(crate) fn complete(&mut self) {
        self.incomplete = false;
    }

    /// Records a change. If an operation fails with corruption or an I/O error after its first change, aborts at once.
    fn checked<R>(&mut self, result: Result<R>) -> Result<R> {
        match &result {
            Err(error @ (Error::Corrupt(_) | Error::Io(_))) if self.incomplete => {
                self.store.abort_from_outside(self.writer, error.cause());
            }
            Err(_) => {}
            Ok(_) => self.incomplete = true,
        }
        result
    }

    /// Creates a block: `fill` initialises zeroed bytes, then the checksum is filled in.
    pub(crate) fn create(
        &mut self,
        number: u64,
        kind: BlockKind,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let mut bytes = vec![0; self.store.geometry.block_size as usize];
        fill(&mut bytes);
        kind.fill_checksum(&self.writer.triggers, &self.store.geometry, number, &mut bytes);
        #[cfg(debug_assertions)]
        self.count(number);
        self.writer.revoked.remove(number);
        self.incomplete = true;
        self.touch(number);
        self.store.cache.create(number, Arc::from(bytes), kind);
        Ok(())
    }

    fn touch(&mut self, number: u64) {
        if let Some(turn) = &mut self.turn {
            turn.touch(number);
        }
    }

    /// Sets the outcome of the [operation](super::Operation) of this thread, which is published together with the changes.
    pub(crate) fn record(&mut self, value: u64) {
        if let Some(turn) = &mut self.turn {
            turn.record(value);
        }
    }

    /// Records a range to discard once the transaction is committed.
    pub(crate) fn freed(&mut self, start: u64, count: u64) {
        self.writer.freed.add(start, count);
    }

    /// Drops a block that no longer holds metadata, and revokes it in the journal.
    pub(crate) fn forget(&mut self, number: u64) {
        self.incomplete = true;
        self.touch(number);
        self.writer.revoked.insert(number);
        self.store.cache.forget(number);
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if self.incomplete {
            self.store.abort_from_outside(
                self.writer,
                &"an operation failed after it had changed some of its blocks",
            );
        }
        if let (Some(turn), false) = (&mut self.turn, self.incomplete) {
            turn.publish(self.store, || self.writer.superblock.raw());
        }
        self.writer.gate.leave(self.credits);
    }
}
