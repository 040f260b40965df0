//! An open file system.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::allocate::Allocator;
use crate::device::Device;
use crate::directory::{Directory, Entry};
use crate::error::{Corruption, Error, Result};
use crate::groups::Group;
use crate::inode::{Inode, Kind};
use crate::journal::Recovered;
use crate::journal::open::{self, Opened, Purpose};
use crate::journal::{Log, Ring};
use crate::layout::{Compat, Incompat, InodeFlags, RawSuperblock, superblock_state};
use crate::locks::Locks;
use crate::orphans::Orphans;
use crate::store::{Store, Timer};
use crate::superblock::Geometry;
use crate::xattr::Xattrs;
use crate::zone::Zone;
use crate::{allocate, directory, inline, xattr};

/// The inode of the root directory.
pub const ROOT: u32 = 2;

/// Bytes of metadata kept in memory where nothing else is said.
const CACHE: usize = 32 << 20;

/// An open file system. All methods may be called from several threads at once.
pub struct Filesystem {
    pub(crate) geometry: Geometry,
    pub(crate) superblock: RawSuperblock,
    pub(crate) store: Arc<Store>,
    pub(crate) locks: Locks,
    pub(crate) orphans: Orphans,
    allocator: Option<Allocator>,
    /// Taken before the locks of two directories.
    pub(crate) moves: Mutex<()>,
    pub(crate) shared_xattrs: Mutex<xattr::Shared>,
    timer: Option<Timer>,
    recovered: Option<Recovered>,
}

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
        let opened = open::open(device, journal, Purpose::Read)?;
        if let Some(Recovered { transactions, blocks, .. }) = opened.recovered {
            tracing::info!("recovered {transactions} transactions with {blocks} blocks in memory");
        }
        let Opened { device, geometry, superblock, recovered, .. } = opened;
        let store = Arc::new(Store::new(device, &geometry, CACHE));
        let journal = open::inside(store.device(), &geometry, &superblock);
        store.protect(Zone::known(&store, journal.as_ref()));
        Ok(Self {
            geometry,
            superblock,
            store,
            locks: Locks::new(),
            moves: Mutex::default(),
            shared_xattrs: Mutex::default(),
            orphans: Orphans::default(),
            allocator: None,
            timer: None,
            recovered,
        })
    }

    /// The file system on a device whose journal was replayed, to be changed without writing to the journal: what
    /// [`sync`](Self::sync) finds changed goes to its place.
    pub(crate) fn unjournaled(device: Arc<dyn Device>, journal: &Log) -> Result<Self> {
        let (geometry, superblock) = Geometry::read(&*device)?;
        let store = Arc::new(Store::writable(device, &geometry, superblock.clone(), None, CACHE));
        store.protect(Zone::of(&store, Some(journal))?);
        let allocator = Some(Allocator::new(&store, 0)?);
        Ok(Self {
            geometry,
            superblock,
            store,
            locks: Locks::new(),
            moves: Mutex::default(),
            shared_xattrs: Mutex::default(),
            orphans: Orphans::default(),
            allocator,
            timer: None,
            recovered: None,
        })
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
            open::open(device, journal, Purpose::Write)?;
        let wide = geometry.incompat.contains(Incompat::BIT64);
        let sums = geometry.checksum_seed.is_some();
        // Before anything is written.
        let zone = {
            let store = Store::new(device.clone(), &geometry, 1 << 20);
            Zone::of(&store, journal.as_ref().map(|(log, _)| log))?
        };
        let ring = journal.map(|(log, _)| Ring::open(log, wide, sums)).transpose()?;
        let store = Store::writable(device, &geometry, superblock.clone(), ring, CACHE);
        store.protect(zone);
        let store = Arc::new(store);
        let allocator = Some(Allocator::new(&store, allocate::reserved(&superblock, geometry.incompat))?);
        store.start()?;
        let timer = Some(Timer::start(&store)?);
        let fs = Self {
            geometry,
            superblock,
            store,
            locks: Locks::new(),
            moves: Mutex::default(),
            shared_xattrs: Mutex::default(),
            orphans: Orphans::default(),
            allocator,
            timer,
            recovered,
        };
        let settled = fs.settle_orphans()?;
        if settled > 0 {
            tracing::info!("freed or cut {settled} orphans");
        }
        Ok(fs)
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

    /// Whether it can be changed: it was opened for that, and no commit failed.
    pub fn is_writable(&self) -> bool {
        self.store.is_writable()
    }

    /// Tells the device of ranges that are freed from now on, after each commit: an image in a file becomes sparse there,
    /// and a disk need not keep them. Ends by itself on a device that cannot use that.
    pub fn discard_freed(&self, wanted: bool) {
        self.store.discard_freed(wanted);
    }

    /// What was recovered from the journal when it was opened; `None` where nothing had to be.
    pub fn recovered(&self) -> Option<Recovered> {
        self.recovered
    }

    /// Sizes, counts and features.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The superblock as it lies on the disk.
    pub fn superblock(&self) -> &RawSuperblock {
        &self.superblock
    }

    /// `ext2`, `ext3` or `ext4`: the oldest that has all its features.
    pub fn kind(&self) -> &'static str {
        self.geometry.kind()
    }

    /// There is a journal.
    pub fn has_journal(&self) -> bool {
        self.geometry.compat.contains(Compat::HAS_JOURNAL)
    }

    /// On the device, the journal holds changes that are not in their places: here they are, in memory alone.
    pub fn needs_recovery(&self) -> bool {
        self.timer.is_none() && self.recovered.is_some()
    }

    /// It was unmounted, and no error was found.
    pub fn is_clean(&self) -> bool {
        self.superblock.state.get() & 3 == 1 && !self.needs_recovery()
    }

    /// Free blocks, as the superblock has them.
    pub fn free_blocks(&self) -> u64 {
        let high = match self.geometry.incompat.contains(Incompat::BIT64) {
            true => u64::from(self.superblock.free_blocks_count_hi.get()) << 32,
            false => 0,
        };
        let clusters = high | u64::from(self.superblock.free_blocks_count_lo.get());
        clusters.saturating_mul(self.geometry.cluster_blocks.into()).min(self.geometry.blocks)
    }

    /// Free blocks and inodes as they are now; `None` where it is only read.
    pub fn free(&self) -> Option<(u64, u64)> {
        self.store.free()
    }

    /// The descriptor of a group.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn group(&self, group: u32) -> Result<Group> {
        if group >= self.geometry.groups {
            return Err(Error::Invalid);
        }
        Group::read(&self.geometry, &self.store, group)
    }

    /// An inode that is in use.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a free one, [`Error::Corrupt`], [`Error::Io`].
    pub fn inode(&self, number: u32) -> Result<Inode> {
        Inode::read(&self.geometry, &self.store, number)
    }

    /// Finds a name in a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::NameTooLong`], [`Error::Corrupt`], [`Error::Io`].
    pub fn find(&self, directory: &Inode, name: &[u8]) -> Result<Inode> {
        let number = if directory.flags.contains(InodeFlags::INLINE_DATA) {
            if name.len() > directory::LONGEST_NAME {
                return Err(Error::NameTooLong);
            }
            let mut found = Err(Error::NotFound);
            self.list(directory, 0, |entry| {
                if entry.name == name {
                    found = Ok(entry);
                }
                found.is_err()
            })?;
            found?.inode
        } else {
            self.directory(directory).find(name)?.inode
        };
        self.target(directory, name, number)
    }

    /// Gives out blocks and inodes.
    pub(crate) fn allocator(&self) -> Result<&Allocator> {
        self.allocator.as_ref().ok_or(Error::ReadOnly)
    }

    /// The inode that a name leads to, as [`list`](Self::list) told it of this directory.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for an inode that no name leads to: a reserved or a free one. [`Error::Io`].
    pub fn follow(&self, directory: &Inode, entry: &Entry) -> Result<Inode> {
        self.target(directory, &entry.name, entry.inode)
    }

    pub(crate) fn target(&self, directory: &Inode, name: &[u8], number: u32) -> Result<Inode> {
        let wrong = |what: String| {
            let what = format!("the name {} leads to {what}", name.escape_ascii());
            Error::Corrupt(Corruption::new(what).inode(directory.number))
        };
        // Only the root and what it needs lies below the first free inode.
        if number < self.geometry.first_inode && number != ROOT {
            return Err(wrong(format!("the reserved inode {number}")));
        }
        self.inode(number).map_err(|error| match error {
            Error::NotFound => wrong(format!("inode {number}, which is free")),
            error => error,
        })
    }

    /// Tells the names of a directory from `offset` on (0 at first, then an entry's `next`), until `take` returns
    /// false.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], [`Error::Corrupt`], [`Error::Io`].
    pub fn list(&self, directory: &Inode, offset: u64, take: impl FnMut(Entry) -> bool) -> Result<()> {
        if directory.flags.contains(InodeFlags::INLINE_DATA) && directory.kind == Kind::Directory {
            return inline::list(self, directory, offset, take);
        }
        self.directory(directory).list(offset, take)
    }

    pub(crate) fn directory<'a>(&'a self, inode: &'a Inode) -> Directory<'a> {
        Directory { geometry: &self.geometry, store: &self.store, inode }
    }

    fn xattrs<'a>(&'a self, inode: &'a Inode) -> Xattrs<'a> {
        Xattrs { geometry: &self.geometry, store: &self.store, inode }
    }

    /// The names of an inode's extended attributes.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn xattr_names(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        self.xattrs(inode).names()
    }

    /// The value of an extended attribute; `None` where there is none of this name.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn xattr(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.xattrs(inode).get(name, |number, size| {
            let holder = self.inode(number)?;
            if !holder.flags.contains(InodeFlags::EA_INODE) || holder.size != u64::from(size) {
                return Err(Corruption::new("holds no attribute of this size").inode(number).into());
            }
            let mut value = vec![0; size as usize];
            self.read(&holder, 0, &mut value)?;
            Ok(value)
        })
    }

    /// Walks a path from the root. Symbolic links are not followed, and `..` is a name like any other.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn walk(&self, path: &[u8]) -> Result<Inode> {
        let mut inode = self.inode(ROOT)?;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            inode = self.find(&inode, name)?;
        }
        Ok(inode)
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
