//! Metadata: read through a cache, changed in transactions.
//!
//! Locks, in the order in which they are taken: inode, handle (the gate), group, the log, shard of the cache.

mod cache;
mod commit;
mod discard;
mod gate;
mod handle;
#[cfg(all(test, feature = "model"))]
mod model;
mod place;
mod revoked;
mod seal;
mod superblock;
mod sync;
#[cfg(test)]
mod tests;
mod timer;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use cache::{Cache, Known};
use discard::Freed;
pub(crate) use gate::Tid;
use gate::{Entered, Gate};
pub(crate) use handle::Handle;
use revoked::Revoked;
pub(crate) use seal::Seal;
use superblock::Super;
pub(crate) use timer::Timer;

use crate::device::Device;
use crate::error::{Corruption, Error, Result};
use crate::journal::Ring;
use crate::layout::RawSuperblock;
use crate::places::Places;
use crate::superblock::Geometry;
use crate::zone::Zone;

/// Bytes of blocks that one transaction may change: all of them are kept in memory.
const LARGEST_TRANSACTION: usize = 16 << 20;

/// The metadata of a file system.
pub(crate) struct Store {
    device: Arc<dyn Device>,
    geometry: Geometry,
    cache: Cache,
    places: Places,
    writer: Option<Writer>,
    /// What no file can have. Known once the file system is open.
    zone: OnceLock<Zone>,
}

/// What changing needs.
struct Writer {
    gate: Gate,
    /// Taken by who commits.
    log: Mutex<Option<Ring>>,
    /// Blocks that the running transaction freed.
    revoked: Revoked,
    superblock: Super,
    freed: Freed,
}

impl Store {
    /// A store that is only read, with a cache of at most `bytes`.
    pub(crate) fn new(device: Arc<dyn Device>, geometry: &Geometry, bytes: usize) -> Self {
        let cache = Cache::new(bytes >> geometry.block_bits);
        let places = Places::new(geometry);
        Self { device, geometry: geometry.clone(), cache, places, writer: None, zone: OnceLock::new() }
    }

    /// A store that is written as well.
    pub(crate) fn writable(
        device: Arc<dyn Device>,
        geometry: &Geometry,
        superblock: RawSuperblock,
        log: Option<Ring>,
        bytes: usize,
    ) -> Self {
        let most = (LARGEST_TRANSACTION >> geometry.block_bits) as u32;
        let writer = Writer {
            gate: Gate::new(log.as_ref().map_or(most, |log| most.min(log.largest_transaction()))),
            log: Mutex::new(log),
            revoked: Revoked::default(),
            superblock: Super::new(superblock),
            freed: Freed::default(),
        };
        Self { writer: Some(writer), ..Self::new(device, geometry, bytes) }
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Where the parts of groups lie.
    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// From now on, no file can have these blocks.
    pub(crate) fn protect(&self, zone: Zone) {
        self.zone.set(zone).ok();
    }

    /// What no file can have.
    pub(crate) fn zone(&self) -> Option<&Zone> {
        self.zone.get()
    }

    /// Checks blocks that a file, or what belongs to one, lies in.
    ///
    /// # Errors
    /// [`Corruption`] where they are not on the device, or metadata of groups or the journal.
    pub(crate) fn check_file_blocks(&self, start: u64, count: u64) -> std::result::Result<(), Corruption> {
        self.geometry.check_blocks(start, count)?;
        self.zone().map_or(Ok(()), |zone| zone.check(start, count))
    }

    fn writer(&self) -> Result<&Writer> {
        self.writer.as_ref().ok_or(Error::ReadOnly)
    }

    /// How long ago the running transaction was first joined.
    fn age(&self) -> Option<Duration> {
        self.writer.as_ref()?.gate.age()
    }

    /// Whether anything can be changed.
    pub(crate) fn is_writable(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| !writer.gate.is_aborted())
    }

    /// A block, which `verify` accepts as what `seal` says.
    pub(crate) fn get(
        &self,
        number: u64,
        seal: Seal,
        verify: impl Fn(&[u8]) -> Result<()>,
    ) -> Result<Arc<[u8]>> {
        loop {
            let (bytes, departures) = match self.cache.look(number) {
                Known::Here(bytes, sealed) => {
                    if sealed != seal {
                        verify(&bytes)?;
                        self.cache.reseal(number, seal);
                    }
                    return Ok(bytes);
                }
                Known::Pending(bytes, departures) => (bytes, departures),
                Known::Away(departures) => {
                    let mut bytes = vec![0; self.geometry.block_size as usize];
                    self.device.read_at(number << self.geometry.block_bits, &mut bytes)?;
                    (bytes.into(), departures)
                }
            };
            verify(&bytes)?;
            if self.cache.insert(number, bytes.clone(), seal, departures) {
                return Ok(bytes);
            }
        }
    }

    /// Joins the running transaction. At most `credits` blocks will be changed; waits while there is no room for them.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], and those of a commit that made room.
    pub(crate) fn begin(&self, credits: u32) -> Result<Handle<'_>> {
        let writer = self.writer()?;
        loop {
            match writer.gate.enter(credits, || self.cache.dirty() + writer.revoked.len() / 64)? {
                Entered::In => {
                    return Ok(Handle {
                        store: self,
                        writer,
                        credits,
                        half: false,
                        #[cfg(debug_assertions)]
                        blocks: std::collections::HashSet::new(),
                    });
                }
                Entered::Full(tid) => self.commit(tid)?,
            }
        }
    }

    /// Whether the device is told of blocks that are freed.
    pub(crate) fn discard_freed(&self, wanted: bool) {
        if let Some(writer) = &self.writer {
            writer.freed.want(wanted);
        }
    }

    /// The last transaction that is on the device as a whole.
    pub(crate) fn committed(&self) -> Tid {
        self.writer.as_ref().map_or(0, |writer| writer.gate.committed())
    }
}
