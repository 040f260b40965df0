//! Metadata buffer cache with transactions, modelled on jbd2.
//!
//! Lock order: inode, handle (the running transaction), group, journal, shard of the cache.

mod block_kind;
mod cache;
mod checkpoint_io;
mod commit;
mod commit_timer;
mod discard;
mod group_locations;
mod handle;
#[cfg(all(test, feature = "model"))]
mod model;
mod revoked;
mod shadow;
mod superblock;
mod sync;
#[cfg(test)]
mod tests;
mod transaction;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) use block_kind::{BlockKind, ChecksumTriggers};
use cache::{Cache, Lookup};
pub(crate) use commit_timer::CommitTimer;
use discard::Freed;
use group_locations::GroupLocations;
pub(crate) use handle::Handle;
use revoked::Revoked;
pub use shadow::{MAX_OPERATIONS, Operation, Outcome, SHADOW_WORDS, SharedMemory, UNNAMED};
pub(crate) use shadow::{Shadow, earlier, run_as};
use superblock::Super;
pub(crate) use transaction::Tid;
use transaction::{Joined, RunningTransaction};

use crate::device::Device;
use crate::error::{Corruption, Error, Result};
use crate::journal::JournalWriter;
use crate::layout::RawSuperblock;
use crate::superblock::Geometry;
use crate::system_zone::SystemZone;

/// Maximum size of the blocks that one transaction may change; all of them are kept in memory.
const MAX_TRANSACTION_BYTES: usize = 16 << 20;

/// The metadata of a file system.
pub(crate) struct MetadataCache {
    device: Arc<dyn Device>,
    geometry: Geometry,
    cache: Cache,
    group_locations: GroupLocations,
    writer: Option<Writer>,
    /// Blocks that no file may own; set once the file system is open.
    zone: OnceLock<SystemZone>,
    counters: Counters,
}

/// Counters since the open, for statistics.
#[derive(Default)]
struct Counters {
    /// Commits that wrote metadata.
    commits: AtomicU64,
    /// Blocks that were not cached.
    reads: AtomicU64,
}

/// State needed for writing.
struct Writer {
    triggers: ChecksumTriggers,
    gate: RunningTransaction,
    /// Locked during a commit.
    log: Mutex<Option<JournalWriter>>,
    /// Metadata blocks freed by the running transaction.
    revoked: Revoked,
    superblock: Super,
    freed: Freed,
    /// Copies of the uncommitted changes for a process that continues after this one.
    shadow: Option<Shadow>,
}

impl MetadataCache {
    /// Creates a read-only cache of at most `bytes`.
    pub(crate) fn new(device: Arc<dyn Device>, geometry: &Geometry, bytes: usize) -> Self {
        let cache = Cache::new(bytes >> geometry.block_bits);
        let group_locations = GroupLocations::new(geometry);
        let geometry = geometry.clone();
        let (zone, counters) = (OnceLock::new(), Counters::default());
        Self { device, geometry, cache, group_locations, writer: None, zone, counters }
    }

    /// Creates a writable cache.
    pub(crate) fn writable(
        device: Arc<dyn Device>,
        geometry: &Geometry,
        superblock: RawSuperblock,
        log: Option<JournalWriter>,
        bytes: usize,
        triggers: ChecksumTriggers,
        shadow: Option<Shadow>,
    ) -> Self {
        let limit = (MAX_TRANSACTION_BYTES >> geometry.block_bits) as u32;
        let writer = Writer {
            triggers,
            gate: RunningTransaction::new(
                log.as_ref().map_or(limit, |log| limit.min(log.largest_transaction())),
            ),
            log: Mutex::new(log),
            revoked: Revoked::default(),
            superblock: Super::new(superblock),
            freed: Freed::default(),
            shadow,
        };
        Self { writer: Some(writer), ..Self::new(device, geometry, bytes) }
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the block numbers of bitmaps and inode tables.
    pub(crate) fn group_locations(&self) -> &GroupLocations {
        &self.group_locations
    }

    /// Sets the blocks that no file may own.
    pub(crate) fn protect(&self, zone: SystemZone) {
        self.zone.set(zone).ok();
    }

    /// Returns the blocks that no file may own.
    pub(crate) fn zone(&self) -> Option<&SystemZone> {
        self.zone.get()
    }

    /// Checks the range of a file's data or metadata blocks.
    ///
    /// # Errors
    /// [`Corruption`] if the range is not on the device, or overlaps group metadata or the journal.
    pub(crate) fn check_file_blocks(&self, start: u64, count: u64) -> std::result::Result<(), Corruption> {
        self.geometry.check_blocks(start, count)?;
        self.zone().map_or(Ok(()), |zone| zone.check(start, count))
    }

    fn writer(&self) -> Result<&Writer> {
        self.writer.as_ref().ok_or(Error::ReadOnly)
    }

    /// Time since the running transaction was first joined.
    fn age(&self) -> Option<Duration> {
        self.writer.as_ref()?.gate.age()
    }

    /// Reports whether metadata can be changed.
    pub(crate) fn is_writable(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| !writer.gate.is_aborted())
    }

    /// Returns a block that `verify` accepts as a block of kind `kind`.
    pub(crate) fn get(
        &self,
        number: u64,
        kind: BlockKind,
        verify: impl Fn(&[u8]) -> Result<()>,
    ) -> Result<Arc<[u8]>> {
        loop {
            let (bytes, generation) = match self.cache.lookup(number) {
                Lookup::Cached(bytes, cached_kind) => {
                    if cached_kind != kind {
                        verify(&bytes)?;
                        self.cache.set_kind(number, kind);
                    }
                    return Ok(bytes);
                }
                Lookup::Pending(bytes, generation) => (bytes, generation),
                Lookup::OnDisk(generation) => {
                    let mut bytes = vec![0; self.geometry.block_size as usize];
                    self.counters.reads.fetch_add(1, Ordering::Relaxed);
                    self.device.read_at(number << self.geometry.block_bits, &mut bytes)?;
                    (bytes.into(), generation)
                }
            };
            verify(&bytes)?;
            if self.cache.insert(number, bytes.clone(), kind, generation) {
                return Ok(bytes);
            }
        }
    }

    /// Joins the running transaction with the right to change at most `credits` blocks. Commits it first if it has no room for
    /// them.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], and the errors of a commit that made room.
    pub(crate) fn begin(&self, credits: u32) -> Result<Handle<'_>> {
        let writer = self.writer()?;
        // Before the handle joins: a commit waits for handles that have joined.
        let mut turn = writer.shadow.as_ref().map(Shadow::turn);
        loop {
            match writer.gate.enter(credits, || self.cache.dirty() + writer.revoked.len() / 64)? {
                Joined::In => {
                    return Ok(Handle {
                        store: self,
                        writer,
                        credits,
                        incomplete: false,
                        turn: turn.take(),
                        #[cfg(debug_assertions)]
                        blocks: std::collections::HashSet::new(),
                    });
                }
                Joined::Full(tid) => self.commit(tid)?,
            }
        }
    }

    /// Enables or disables discard of freed blocks.
    pub(crate) fn discard_freed(&self, enabled: bool) {
        if let Some(writer) = &self.writer {
            writer.freed.set_enabled(enabled);
        }
    }

    /// Returns the number of commits that wrote metadata, and of metadata blocks read from the device.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let Counters { commits, reads } = &self.counters;
        (commits.load(Ordering::Relaxed), reads.load(Ordering::Relaxed))
    }

    /// Returns the last committed transaction.
    pub(crate) fn committed(&self) -> Tid {
        self.writer.as_ref().map_or(0, |writer| writer.gate.committed())
    }
}
