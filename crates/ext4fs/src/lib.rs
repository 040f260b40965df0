//! ext2, ext3 and ext4 images, mounted.
//!
//! [`shunt_ext4`] is the engine, which knows nothing of requests. [`Ext4`] is its thin face: each request is translated,
//! and the engine does it. Inodes have the numbers of the image, so that a mount that is only read remembers nothing of what
//! the kernel was told.
//!
//! ```no_run
//! use std::sync::Arc;
//! use shunt_ext4::{FileDevice, Filesystem};
//! use shunt_ext4fs::Ext4;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let image = std::fs::File::open("disk.img")?;
//! let data = image.try_clone()?;
//! let ext4 = Ext4::new(Filesystem::open(Arc::new(FileDevice::new(image, true)?))?, Some(data.into()))?;
//! let (config, options) = (ext4.config(), ext4.mount_options());
//! shunt_fuse::mount(ext4, config, "/mnt".as_ref(), &options)?.wait()?;
//! # Ok(())
//! # }
//! ```

mod atime;
mod attributes;
mod corruption_log;
mod direct_write;
mod elsewhere;
mod flags;
mod fuse_ops;
mod listing;
mod lookup_count;
mod lost;
mod low_space;
mod mapped;
mod names;
mod opens;
mod places;
mod reaper;
mod reply;
mod setattr;
mod summary;
mod sync;
mod writers;
mod xattrs;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use shunt_ext4::Filesystem;
use shunt_ext4::layout::Incompat;
use shunt_extmap::Connection;
use shunt_fuse::Config;
use shunt_fuse::mount::MountOptions;

use corruption_log::Damage;
use direct_write::DirectWrites;
use lookup_count::LookupCounts;
use lost::Lost;
use low_space::LowSpace;
use mapped::Mapped;
use reaper::Reaper;
use writers::Writers;

pub use atime::{Atime, ReadTimes};
pub use low_space::DirtyData;
pub use summary::Summary;

/// A file system on an image, ready to be served.
pub struct Ext4 {
    filesystem: Arc<Filesystem>,
    /// The file that the image lies in, from which the kernel may fetch content by itself.
    image: Option<Arc<OwnedFd>>,
    damage: Damage,
    /// Nothing is changed any more once damage was found.
    ends_at_damage: bool,
    /// What the kernel knows; kept only where something may be freed.
    known: LookupCounts,
    /// What failed to be written back.
    lost: Lost,
    /// Files that may have dirty pages.
    writers: Arc<Writers>,
    /// Set where the kernel keeps dirty pages of which the engine does not know.
    low_space: Option<LowSpace>,
    /// Set where anything may be changed.
    reaper: Option<Arc<Reaper>>,
    read_times: ReadTimes,
    /// Set where the kernel reads files by itself.
    mapped: Option<Mapped>,
    /// Set where the kernel reads and writes files by itself.
    writing: Option<DirectWrites>,
}

impl Ext4 {
    /// Serves an open file system. `image` is the file that its device was made of.
    ///
    /// # Errors
    /// No thread.
    pub fn new(filesystem: Filesystem, image: Option<OwnedFd>) -> std::io::Result<Self> {
        Self::locked_in(filesystem, image, DirtyData::open())
    }

    /// As [`new`](Self::new), in a process that can open no other files any more.
    ///
    /// # Errors
    /// No thread.
    pub fn locked_in(
        filesystem: Filesystem,
        image: Option<OwnedFd>,
        dirty: DirtyData,
    ) -> std::io::Result<Self> {
        let filesystem = Arc::new(filesystem);
        let reaper =
            filesystem.is_writable().then(|| Reaper::start(filesystem.clone()).map(Arc::new)).transpose()?;
        let writers = Arc::<Writers>::default();
        let watch = || LowSpace::start(filesystem.clone(), writers.clone(), dirty);
        let low_space = filesystem.is_writable().then(watch).transpose()?;
        Ok(Self {
            read_times: ReadTimes::default(),
            filesystem,
            image: image.map(Arc::new),
            damage: Damage::default(),
            ends_at_damage: false,
            known: LookupCounts::default(),
            lost: Lost::default(),
            low_space,
            writers,
            reaper,
            mapped: None,
            writing: None,
        })
    }

    /// How reads are noted, where the image may be written. By default as with `relatime`.
    pub fn with_read_times(mut self, read_times: ReadTimes) -> Self {
        self.read_times = read_times;
        self
    }

    /// Ends all changes once damaged metadata is found, as `errors=remount-ro`. Otherwise what is damaged is refused, and the rest
    /// goes on.
    pub fn with_end_at_damage(mut self, ends: bool) -> Self {
        self.ends_at_damage = ends;
        self
    }

    /// Has the kernel read files by itself, and write them where the image may be written, from the block device that the
    /// image lies on or that was made of it; what it cannot read so goes through the daemon.
    ///
    /// # Errors
    /// No thread.
    pub fn with_device(mut self, connection: Connection) -> std::io::Result<Self> {
        match &self.reaper {
            Some(reaper) => {
                // The kernel asks for a block before it accepts data.
                self.low_space = None;
                self.writing = Some(DirectWrites::start(connection, self.filesystem.clone(), reaper)?);
            }
            None => self.mapped = Some(Mapped::new(connection)),
        }
        Ok(self)
    }

    /// The engine.
    pub fn filesystem(&self) -> &Filesystem {
        &self.filesystem
    }

    /// Whether anything may be changed through this mount.
    pub fn is_writable(&self) -> bool {
        self.reaper.is_some()
    }

    /// Inodes that are remembered because the kernel knows them.
    pub fn known_inodes(&self) -> u64 {
        self.known.len()
    }

    /// What a session for this file system asks of the kernel.
    pub fn config(&self) -> Config {
        let mapped = if self.is_writable() { self.writing.is_some() } else { self.mapped.is_some() };
        Summary::of(&self.filesystem).config(mapped)
    }

    /// What the kernel must be told: it checks permissions, the face does not.
    pub fn mount_options(&self) -> MountOptions {
        Summary::of(&self.filesystem).mount_options()
    }

    /// Without the key, encrypted files cannot be opened, nor can others be written that are immutable: opens are asked for
    /// only where there may be some, or where an open says that the kernel is to read the file by itself.
    fn opens_matter(&self) -> bool {
        self.is_writable()
            || self.mapped.is_some()
            || self.filesystem.geometry().incompat.contains(Incompat::ENCRYPT)
    }

    /// Returns when all is on the device, and nothing is left to be recovered. Nothing can be changed afterwards.
    fn finish(&self) {
        let Some(reaper) = &self.reaper else { return };
        if let Some(low_space) = &self.low_space {
            low_space.end();
        }
        // What fails is in the log.
        let _ = self.settle_reads();
        if let Some(writing) = &self.writing {
            writing.finish();
        }
        for number in self.known.take_nameless() {
            reaper.free(number);
        }
        reaper.end();
        if let Some(writing) = &self.writing {
            writing.end();
        }
        if let Err(error) = self.filesystem.finish() {
            tracing::error!("the last commit failed: {error}");
        }
    }
}

impl std::fmt::Debug for Ext4 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ext4").field("kind", &self.filesystem.kind()).finish_non_exhaustive()
    }
}
