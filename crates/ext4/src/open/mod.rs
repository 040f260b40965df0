//! A file system is opened, synced and closed.

mod fast_commit_replay;
mod journal;
mod system_zone;

use std::sync::Arc;

use parking_lot::Mutex;

pub use journal::recover;

use crate::allocate::{self, Allocator};
use crate::buffer::{ChecksumTriggers, CommitTimer, MetadataCache};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::journal::{JournalArea, JournalWriter, Recovered};
use crate::layout::{Incompat, RawSuperblock, superblock_state};
use crate::locks::Locks;
use crate::orphan_lists::Orphans;
use crate::superblock::Geometry;
use crate::system_zone::SystemZone;
use crate::{directory, map, orphans, xattr};
use journal::{Opened, Purpose};

/// Bytes of metadata kept in memory where nothing else is said.
const CACHE: usize = 32 << 20;

/// The checksums of the formats that this crate knows.
const TRIGGERS: ChecksumTriggers = ChecksumTriggers {
    extents: map::fill_extent_sum,
    directory: directory::fill_sum,
    xattrs: xattr::fill_sum,
    orphans: orphans::fill_sum,
};

impl Filesystem {
    /// Opens the file system on a device, to be read. Where its journal holds changes that are not in their places yet,
    /// they are applied in memory: the device is not written.
    ///
    /// # Errors
    /// Those of [`Geometry::read`]; [`Error::Journal`] where the journal lies on another device and is needed;
    /// [`Error::Corrupt`] where it is damaged.
    pub fn open(device: Arc<dyn Device>) -> Result<Self> {
        Self::open_with_journal(device, None)
    }

    /// As [`open`](Self::open), with the device of an external journal.
    ///
    /// # Errors
    /// As `open`; [`Error::Journal`] where the journal given is that of another file system.
    pub fn open_with_journal(device: Arc<dyn Device>, journal: Option<Arc<dyn Device>>) -> Result<Self> {
        let opened = journal::open(device, journal, Purpose::Read)?;
        if let Some(Recovered { transactions, blocks, .. }) = opened.recovered {
            tracing::info!("recovered {transactions} transactions with {blocks} blocks in memory");
        }
        let Opened { device, geometry, superblock, recovered, .. } = opened;
        let store = Arc::new(MetadataCache::new(device, &geometry, CACHE));
        let journal = journal::inside(store.device(), &geometry, &superblock);
        store.protect(SystemZone::known(&store, journal.as_ref()));
        Ok(Self::assemble((geometry, superblock), store, None, recovered))
    }

    /// The file system on a device whose journal was replayed, to be changed without writing to the journal: what
    /// [`sync`](Self::sync) finds changed goes to its place.
    pub(crate) fn unjournaled(device: Arc<dyn Device>, journal: &JournalArea) -> Result<Self> {
        let (geometry, superblock) = Geometry::read(&*device)?;
        let store =
            Arc::new(MetadataCache::writable(device, &geometry, superblock.clone(), None, CACHE, TRIGGERS));
        store.protect(SystemZone::of(&store, Some(journal))?);
        let allocator = Allocator::new(&store, 0)?;
        Ok(Self::assemble((geometry, superblock), store, Some(allocator), None))
    }

    /// Opens the file system on a device, to be read and written; its journal is recovered first. What is changed is on
    /// the device after [`sync`](Self::sync), and five seconds later at the latest.
    ///
    /// # Errors
    /// Those of [`Geometry::read`]; [`Error::Unsupported`] for features with which it can only be
    /// [read](Self::open), by name.
    pub fn open_writable(device: Arc<dyn Device>) -> Result<Self> {
        Self::open_writable_with_journal(device, None)
    }

    /// As [`open_writable`](Self::open_writable), with the device of an external journal.
    ///
    /// # Errors
    /// As `open_writable`; [`Error::Journal`] where the journal given is that of another file system.
    pub fn open_writable_with_journal(
        device: Arc<dyn Device>,
        journal: Option<Arc<dyn Device>>,
    ) -> Result<Self> {
        if device.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let Opened { device, geometry, superblock, journal, recovered } =
            journal::open(device, journal, Purpose::Write)?;
        let wide = geometry.incompat.contains(Incompat::BIT64);
        let sums = geometry.checksum_seed.is_some();
        // Before anything is written.
        let zone = {
            let store = MetadataCache::new(device.clone(), &geometry, 1 << 20);
            SystemZone::of(&store, journal.as_ref().map(|(log, _)| log))?
        };
        let ring = journal.map(|(log, _)| JournalWriter::open(log, wide, sums)).transpose()?;
        let store = MetadataCache::writable(device, &geometry, superblock.clone(), ring, CACHE, TRIGGERS);
        store.protect(zone);
        let store = Arc::new(store);
        let allocator = Allocator::new(&store, allocate::reserved(&superblock, geometry.incompat))?;
        store.start()?;
        let timer = CommitTimer::start(&store)?;
        let mut fs = Self::assemble((geometry, superblock), store, Some(allocator), recovered);
        fs.timer = Some(timer);
        let settled = fs.settle_orphans()?;
        if settled > 0 {
            tracing::info!("freed or cut {settled} orphans");
        }
        Ok(fs)
    }

    fn assemble(
        (geometry, superblock): (Geometry, RawSuperblock),
        store: Arc<MetadataCache>,
        allocator: Option<Allocator>,
        recovered: Option<Recovered>,
    ) -> Self {
        Self {
            geometry,
            superblock,
            store,
            locks: Locks::new(),
            orphans: Orphans::default(),
            allocator,
            moves: Mutex::default(),
            shared_xattrs: Mutex::default(),
            timer: None,
            recovered,
        }
    }

    /// It was without errors before it was opened.
    fn was_valid(&self) -> bool {
        self.superblock.state.get() & superblock_state::VALID != 0
    }

    /// Returns when everything that was changed before lasts through a power cut.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] after a commit failed, [`Error::Io`] for the one that fails.
    pub fn sync(&self) -> Result<()> {
        self.store.sync()
    }

    /// Writes everything to its place. Dropping does the same, and tells no errors.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn close(mut self) -> Result<()> {
        self.timer = None;
        self.store.close(self.was_valid(), self.orphans.any_in_file())
    }

    /// As [`close`](Self::close), for who shares it with others: from then on it can only be read.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn finish(&self) -> Result<()> {
        match self.timer {
            Some(_) => self.store.close(self.was_valid(), self.orphans.any_in_file()),
            None => Ok(()),
        }
    }
}

impl Drop for Filesystem {
    fn drop(&mut self) {
        // Not after `close` and `finish`, which have the errors.
        if self.timer.take().is_some() && self.store.is_writable() {
            self.store.close(self.was_valid(), self.orphans.any_in_file()).ok();
        }
    }
}
