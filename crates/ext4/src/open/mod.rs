//! Opening, syncing and closing a file system.

mod fast_commit_replay;
mod journal;
mod setup_system_zone;
mod takeover;

use std::sync::Arc;

use parking_lot::Mutex;

pub use journal::recover;

use crate::allocate::{self, Allocator};
use crate::buffer::{ChecksumTriggers, CommitTimer, MetadataCache, Outcome, Shadow};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::journal::{JournalArea, JournalWriter, Recovered};
use crate::layout::{Incompat, RawSuperblock, superblock_state};
use crate::locks::Locks;
use crate::orphan_slots::Orphans;
use crate::superblock::Geometry;
use crate::system_zone::SystemZone;
use crate::{directory, map, orphans, xattr};
use journal::{OpenMode, Opened};
use takeover::Memory;

/// Size of the metadata cache in bytes.
const METADATA_CACHE_BYTES: usize = 32 << 20;

/// The checksums of the formats that this crate knows.
const TRIGGERS: ChecksumTriggers = ChecksumTriggers {
    extents: map::fill_extent_sum,
    directory: directory::fill_sum,
    xattrs: xattr::fill_sum,
    orphans: orphans::fill_sum,
};

impl Filesystem {
    /// Opens the file system on a device for reading. Changes in its journal that are not checkpointed are applied in memory: the
    /// device is not written.
    ///
    /// # Errors
    /// The errors of [`Geometry::read`]; [`Error::Journal`] if a required journal is on another device; [`Error::Corrupt`] if the
    /// journal is damaged.
    pub fn open(device: Arc<dyn Device>) -> Result<Self> {
        Self::open_with_journal(device, None)
    }

    /// Opens a file system for reading with the device of an external journal; otherwise like [`open`](Self::open).
    ///
    /// # Errors
    /// The errors of `open`; [`Error::Journal`] if the journal belongs to another file system.
    pub fn open_with_journal(device: Arc<dyn Device>, journal: Option<Arc<dyn Device>>) -> Result<Self> {
        let opened = journal::open(device, journal, OpenMode::Read)?;
        if let Some(Recovered { transactions, blocks, .. }) = opened.recovered {
            tracing::info!("journal: replayed {transactions} transactions with {blocks} blocks in memory");
        }
        let Opened { device, geometry, superblock, recovered, .. } = opened;
        let store = Arc::new(MetadataCache::new(device, &geometry, METADATA_CACHE_BYTES));
        let journal = journal::inside(store.device(), &geometry, &superblock);
        store.protect(SystemZone::of_readable(&store, journal.as_ref()));
        Ok(Self::assemble((geometry, superblock), store, None, recovered))
    }

    /// Opens the file system on a device whose journal was replayed, for changes without journaling: [`sync`](Self::sync) writes
    /// them to their final locations.
    pub(crate) fn unjournaled(device: Arc<dyn Device>, journal: &JournalArea) -> Result<Self> {
        let (geometry, superblock) = Geometry::read(&*device)?;
        let store = Arc::new(MetadataCache::writable(
            device,
            &geometry,
            superblock.clone(),
            None,
            METADATA_CACHE_BYTES,
            TRIGGERS,
            None,
        ));
        store.protect(SystemZone::of(&store, Some(journal))?);
        let allocator = Allocator::new(&store, 0)?;
        Ok(Self::assemble((geometry, superblock), store, Some(allocator), None))
    }

    /// Opens the file system on a device for reading and writing, after recovering its journal. Changes are on the device after
    /// [`sync`](Self::sync), and after five seconds at the latest.
    ///
    /// # Errors
    /// The errors of [`Geometry::read`]; [`Error::Unsupported`] for features, listed by name, that only allow
    /// [reading](Self::open).
    pub fn open_writable(device: Arc<dyn Device>) -> Result<Self> {
        Self::open_writable_with_journal(device, None)
    }

    /// Opens a file system for writing with the device of an external journal; otherwise like
    /// [`open_writable`](Self::open_writable).
    ///
    /// # Errors
    /// The errors of `open_writable`; [`Error::Journal`] if the journal belongs to another file system.
    pub fn open_writable_with_journal(
        device: Arc<dyn Device>,
        journal: Option<Arc<dyn Device>>,
    ) -> Result<Self> {
        Ok(Self::open_for_changes(device, journal, None)?.0)
    }

    fn open_for_changes(
        device: Arc<dyn Device>,
        journal: Option<Arc<dyn Device>>,
        memory: Option<Memory>,
    ) -> Result<(Self, Vec<Outcome>)> {
        if device.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let Opened { device, geometry, mut superblock, journal, recovered } =
            journal::open(device, journal, OpenMode::Write)?;
        let wide = geometry.incompat.contains(Incompat::BIT64);
        let sums = geometry.checksum_seed.is_some();
        // Check the zone before anything is written.
        let zone = {
            let store = MetadataCache::new(device.clone(), &geometry, 1 << 20);
            SystemZone::of(&store, journal.as_ref().map(|(log, _)| log))?
        };
        let (shadow, saved) = match memory {
            None => (None, None),
            Some(Memory::New(memory)) => (Some(Shadow::new(memory, geometry.block_bits)?), None),
            Some(Memory::Inherited(memory)) => {
                let (shadow, saved) = Shadow::inherit(memory, &geometry)?;
                (Some(shadow), Some(saved))
            }
        };
        let ring = journal.map(|(log, _)| JournalWriter::open(log, wide, sums)).transpose()?;
        let store = MetadataCache::writable(
            device,
            &geometry,
            superblock.clone(),
            ring,
            METADATA_CACHE_BYTES,
            TRIGGERS,
            shadow,
        );
        store.protect(zone);
        let store = Arc::new(store);
        let mut allocator = Allocator::new(&store, allocate::reserved(&superblock, geometry.incompat))?;
        let continues = saved.is_some();
        store.start(continues)?;
        let mut outcomes = Vec::new();
        if let Some(mut saved) = saved {
            store.restore(&mut saved)?;
            if let Some(fields) = saved.superblock {
                fields.apply(&mut superblock);
            }
            allocator = Allocator::new(&store, allocate::reserved(&superblock, geometry.incompat))?;
            // Answered changes must not depend on the life of this process either.
            store.sync()?;
            outcomes = saved.outcomes;
        }
        let timer = CommitTimer::start(&store)?;
        let mut fs = Self::assemble((geometry, superblock), store, Some(allocator), recovered);
        fs.timer = Some(timer);
        // A process that continues after another decides about unlinked inodes itself: they may be in use.
        let processed = fs.process_orphans(!continues)?;
        if processed > 0 {
            tracing::info!("deleted or truncated {processed} orphan inodes");
        }
        Ok((fs, outcomes))
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
            rename_lock: Mutex::default(),
            xattr_block_cache: Mutex::default(),
            timer: None,
            recovered,
        }
    }

    /// Reports whether no error was recorded before the file system was opened.
    fn was_valid(&self) -> bool {
        self.superblock.state.get() & superblock_state::VALID != 0
    }

    /// Returns when all previous changes are durable across a power failure.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] after a failed commit, [`Error::Io`] for the commit that fails.
    pub fn sync(&self) -> Result<()> {
        self.store.sync()
    }

    /// Writes all changes to their final locations. Dropping does the same, but reports no errors.
    ///
    /// # Errors
    /// The errors of [`sync`](Self::sync).
    pub fn close(mut self) -> Result<()> {
        self.timer = None;
        self.store.close(self.was_valid(), self.orphans.any_in_file())
    }

    /// Closes a shared file system like [`close`](Self::close); afterwards it is read-only.
    ///
    /// # Errors
    /// The errors of [`sync`](Self::sync).
    pub fn finish(&self) -> Result<()> {
        match self.timer {
            Some(_) => self.store.close(self.was_valid(), self.orphans.any_in_file()),
            None => Ok(()),
        }
    }
}

impl Drop for Filesystem {
    fn drop(&mut self) {
        // Not needed after `close` and `finish`, which report errors.
        if self.timer.take().is_some() && self.store.is_writable() {
            self.store.close(self.was_valid(), self.orphans.any_in_file()).ok();
        }
    }
}
