//! Transaction commit, checkpoint and abort: the changes of a transaction reach the device atomically.

use std::sync::atomic::Ordering;

use super::{MetadataCache, Tid, Writer, checkpoint_io};
use crate::error::{Error, Result};
use crate::journal::JournalWriter;
use crate::layout::superblock_state::{ERROR, VALID};
use crate::layout::{Compat, Incompat, RoCompat};

/// Bytes in the journal that may await a checkpoint; the same amount of memory holds the blocks.
const MAX_UNCHECKPOINTED_BYTES: u64 = 32 << 20;

impl MetadataCache {
    /// Commits the running transaction. On return, all previous changes and all data written before are durable.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] after a failed commit, and the error of the commit itself.
    pub(crate) fn sync(&self) -> Result<()> {
        match &self.writer {
            Some(writer) => self.commit(writer.gate.running()),
            None => Ok(()),
        }
    }

    /// Commits this transaction unless it is committed already. Concurrent requests share one commit (group commit).
    pub(super) fn commit(&self, tid: Tid) -> Result<()> {
        let writer = self.writer()?;
        let mut log = writer.log.lock();
        if writer.gate.is_aborted() {
            return Err(Error::ReadOnly);
        }
        if writer.gate.committed() >= tid {
            return Ok(());
        }
        let result = self.write_transaction(writer, &mut log);
        if let Err(error) = &result {
            if writer.gate.abort() {
                self.record_abort(writer, log.as_mut(), error.cause());
            }
        }
        result
    }

    fn write_transaction(&self, writer: &Writer, log: &mut Option<JournalWriter>) -> Result<()> {
        let taken = writer.gate.freeze(|tid| {
            let revoked = writer.revoked.take();
            if self.cache.dirty() > 0 || writer.superblock.is_changed() || !revoked.is_empty() {
                self.put_superblock(writer)?;
            }
            let shadow = writer.shadow.as_ref().map(|shadow| (shadow, shadow.freeze()));
            Ok::<_, Error>((tid, self.cache.freeze(), revoked, writer.freed.take(), shadow))
        });
        let (tid, frozen, revoked, freed, shadow) = taken.ok_or(Error::ReadOnly)??;
        let writes_metadata = !frozen.is_empty();
        match log {
            // No metadata has changed: flush data.
            _ if frozen.is_empty() => self.device.flush()?,
            None => {
                checkpoint_io::write(&*self.device, self.geometry.block_bits, &frozen)?;
                self.device.flush()?;
                self.cache.committed(frozen, false);
            }
            Some(ring) => {
                let revoked: Vec<u64> = revoked.into_iter().collect();
                if !ring.has_room(frozen.len(), revoked.len()) {
                    self.checkpoint(ring)?;
                }
                ring.write(&*self.device, &frozen, &revoked)?;
                // Must precede `committed` below: a new copy may be of a block that was freed and taken again.
                revoked.into_iter().for_each(|number| self.cache.revoked(number));
                self.cache.committed(frozen, true);
                if ring.waiting() > MAX_UNCHECKPOINTED_BYTES {
                    self.checkpoint(ring)?;
                }
            }
        }
        if let Some((shadow, sequence)) = shadow {
            shadow.committed(sequence);
        }
        self.discard(&writer.freed, freed);
        // From here on, the freed blocks can be allocated.
        writer.gate.set_committed(tid);
        if writes_metadata {
            self.counters.commits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes all committed blocks to their final locations, and empties the journal.
    fn checkpoint(&self, ring: &mut JournalWriter) -> Result<()> {
        let pending = self.cache.pending();
        checkpoint_io::write(&*self.device, self.geometry.block_bits, &pending)?;
        self.device.flush()?;
        self.cache.checkpointed(&pending);
        ring.empty()
    }

    /// Aborts: rejects all further changes, so that the device keeps the last complete transaction. The caller holds a handle; a
    /// commit that waits for the handle has ended before this takes the lock of the journal.
    pub(super) fn abort_from_outside(&self, writer: &Writer, reason: &dyn std::fmt::Display) {
        if writer.gate.abort() {
            self.record_abort(writer, writer.log.lock().as_mut(), reason);
        }
    }

    /// Aborts like [`abort_from_outside`](Self::abort_from_outside), for callers without a handle.
    pub(crate) fn abort_without_handle(&self, reason: &dyn std::fmt::Display) {
        if let Some(writer) = &self.writer {
            self.abort_from_outside(writer, reason);
        }
    }

    /// Logs an abort, and records the error on the device.
    fn record_abort(
        &self,
        writer: &Writer,
        ring: Option<&mut JournalWriter>,
        reason: &dyn std::fmt::Display,
    ) {
        tracing::error!(
            "transaction aborted: {reason}; the file system is now read-only: unmount it and run e2fsck -f"
        );
        if let Some(shadow) = &writer.shadow {
            shadow.abort();
        }
        // Best effort on a device that has just failed. The superblock is written by itself.
        if let Some(ring) = ring {
            ring.abort();
        }
        writer.superblock.record_error();
        writer.place_superblock(self).ok();
    }

    /// Starts journaling: marks the file system as needing recovery until it is closed. A process that `continues` after another
    /// is no further mount.
    pub(crate) fn start(&self, continues: bool) -> Result<()> {
        let mut log = self.writer()?.log.lock();
        let journaled = log.is_some();
        self.change_superblock_now(|raw| {
            let mut incompat = Incompat::from_bits_retain(raw.feature_incompat.get());
            incompat.set(Incompat::NEEDS_RECOVERY, journaled);
            raw.feature_incompat.set(incompat.bits());
            if !journaled {
                raw.state.set(raw.state.get() & !VALID);
            }
            // Without this flag, the orphan file would be ignored after a crash.
            let mut ro_compat = RoCompat::from_bits_retain(raw.feature_ro_compat.get());
            let file = self.geometry.compat.contains(Compat::ORPHAN_FILE);
            ro_compat.set(RoCompat::ORPHAN_PRESENT, file);
            raw.feature_ro_compat.set(ro_compat.bits());
            if continues {
                return;
            }
            raw.mnt_count.set(raw.mnt_count.get().wrapping_add(1));
            let now = crate::time::now().seconds;
            raw.mtime.set(now as u32);
            raw.mtime_hi = (now >> 32) as u8;
        })?;
        log.as_mut().map_or(Ok(()), JournalWriter::begin)
    }

    /// Does the last commit and checkpoints everything, so that no recovery is needed. `orphans` means that the orphan file still
    /// lists inodes.
    pub(crate) fn close(&self, was_valid: bool, orphans: bool) -> Result<()> {
        self.sync()?;
        let writer = self.writer()?;
        let mut log = writer.log.lock();
        if let Some(ring) = &mut *log {
            self.checkpoint(ring)?;
            ring.close()?;
        }
        writer.gate.abort();
        self.change_superblock_now(|raw| {
            let mut incompat = Incompat::from_bits_retain(raw.feature_incompat.get());
            incompat.remove(Incompat::NEEDS_RECOVERY);
            raw.feature_incompat.set(incompat.bits());
            let mut ro_compat = RoCompat::from_bits_retain(raw.feature_ro_compat.get());
            ro_compat.set(RoCompat::ORPHAN_PRESENT, orphans);
            raw.feature_ro_compat.set(ro_compat.bits());
            if was_valid && raw.state.get() & ERROR == 0 {
                raw.state.set(raw.state.get() | VALID);
            }
        })
    }
}
