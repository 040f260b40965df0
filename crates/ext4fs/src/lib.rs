//! FUSE file system that serves ext2, ext3 and ext4 images.
//!
//! [`shunt_ext4`] is the engine, which knows nothing of requests. [`Ext4`] is a thin layer over it that translates each FUSE
//! request into calls of the engine. Node ids are the inode numbers of the image, so a read-only mount keeps no state about the
//! inodes that the kernel looked up.
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
mod dirty_data;
mod error_policy;
mod flags;
mod foreign_data;
mod fuse_ops;
mod handles;
mod killpriv;
mod listing;
mod lookup_count;
mod lost;
mod low_space;
mod mapped;
mod names;
mod notification_sent;
mod opens;
mod reaper;
mod reply;
mod seek_and_bmap;
mod sequence;
mod setattr;
mod summary;
mod sync;
mod takeover;
mod writers;
mod xattrs;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use shunt_ext4::Filesystem;
use shunt_ext4::layout::Incompat;
use shunt_extmap::Connection;
use shunt_fuse::Config;
use shunt_fuse::mount::MountOptions;

use corruption_log::CorruptionLog;
use direct_write::DirectWrites;
use handles::Handles;
use lookup_count::LookupCounts;
use lost::WriteErrors;
use low_space::LowSpace;
use mapped::Mapped;
use reaper::Reaper;
use takeover::Resumable;
use writers::Writers;

pub use atime::{Atime, ReadTimes};
pub use corruption_log::DamageCounts;
pub use dirty_data::DirtyData;
pub use summary::Summary;
pub use takeover::TakeoverMemory;

/// A file system on an image, which a FUSE session can serve.
pub struct Ext4 {
    filesystem: Arc<Filesystem>,
    /// The file that contains the image. The kernel may read content from it directly.
    image: Option<Arc<OwnedFd>>,
    corruption_log: CorruptionLog,
    /// Metadata corruption ends all changes, as with `errors=remount-ro`.
    errors_remount_ro: bool,
    /// Lookup counts of the kernel. Kept only where inodes can be freed.
    lookup_counts: LookupCounts,
    /// Numbers of open handles.
    handles: Handles,
    /// Set where another daemon can take over.
    resumable: Option<Resumable>,
    /// Failed WRITE requests of the write-back cache.
    write_errors: WriteErrors,
    /// Inodes with writable handles, which may have dirty pages.
    writers: Arc<Writers>,
    /// Set where the kernel keeps dirty pages for which the engine has not allocated blocks.
    low_space: Option<LowSpace>,
    /// Set on writable mounts.
    reaper: Option<Arc<Reaper>>,
    read_times: ReadTimes,
    /// Set where the kernel reads mapped files directly from the device.
    mapped: Option<Mapped>,
    /// Set where the kernel reads and writes mapped files directly on the device.
    writing: Option<DirectWrites>,
}

impl Ext4 {
    /// Serves an open file system. `image` is the file behind its device.
    ///
    /// # Errors
    /// Errors of starting a thread.
    pub fn new(filesystem: Filesystem, image: Option<OwnedFd>) -> std::io::Result<Self> {
        Self::locked_in(filesystem, image, DirtyData::open())
    }

    /// Like [`new`](Self::new), for a sandboxed process that can no longer open files.
    ///
    /// # Errors
    /// Errors of starting a thread.
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
            corruption_log: CorruptionLog::default(),
            errors_remount_ro: false,
            lookup_counts: LookupCounts::default(),
            handles: Handles::default(),
            resumable: None,
            write_errors: WriteErrors::default(),
            low_space,
            writers,
            reaper,
            mapped: None,
            writing: None,
        })
    }

    /// Sets how a writable mount updates access times. The default is `relatime`.
    pub fn with_read_times(mut self, read_times: ReadTimes) -> Self {
        self.read_times = read_times;
        self
    }

    /// Ends all changes once corrupt metadata is found, as `errors=remount-ro`. Otherwise only operations on the corrupt
    /// objects fail.
    pub fn with_errors_remount_ro(mut self, enabled: bool) -> Self {
        self.errors_remount_ro = enabled;
        self
    }

    /// Returns the errors of the image since the mount.
    pub fn damage_counts(&self) -> DamageCounts {
        self.corruption_log.counts()
    }

    /// Lets the kernel read files directly from the block device that holds the image or was made of it, and write them where
    /// the image is writable. Files that cannot be mapped go through the daemon.
    ///
    /// # Errors
    /// Errors of starting a thread.
    pub fn with_device(mut self, connection: Connection) -> std::io::Result<Self> {
        match &self.reaper {
            Some(reaper) => {
                // The kernel requests blocks before it accepts data.
                self.low_space = None;
                self.writing = Some(DirectWrites::start(connection, self.filesystem.clone(), reaper)?);
            }
            None => self.mapped = Some(Mapped::new(connection)),
        }
        Ok(self)
    }

    /// Returns the engine.
    pub fn filesystem(&self) -> &Filesystem {
        &self.filesystem
    }

    /// Reports whether this mount can change the image.
    pub(crate) fn is_writable(&self) -> bool {
        self.reaper.is_some()
    }

    /// Counts the inodes with a lookup count.
    pub fn known_inodes(&self) -> u64 {
        self.lookup_counts.len()
    }

    /// Returns the session configuration for this file system.
    pub fn config(&self) -> Config {
        let mapped = if self.is_writable() { self.writing.is_some() } else { self.mapped.is_some() };
        Summary::of(&self.filesystem).config(mapped)
    }

    /// Returns the mount options. The kernel checks permissions (`default_permissions`); this crate does not.
    pub fn mount_options(&self) -> MountOptions {
        Summary::of(&self.filesystem).mount_options()
    }

    /// Reports whether OPEN requests are needed. Encrypted files cannot be opened without their key, and immutable files cannot
    /// be opened for writing, so opens matter where such files may exist, or where the reply to an open names a backing file
    /// for passthrough.
    fn opens_matter(&self) -> bool {
        self.is_writable()
            || self.mapped.is_some()
            || self.filesystem.geometry().incompat.contains(Incompat::ENCRYPT)
    }

    /// Ends all changes. On return everything is on the device and the journal needs no recovery.
    fn finish(&self) {
        let Some(reaper) = &self.reaper else { return };
        if let Some(low_space) = &self.low_space {
            low_space.end();
        }
        // Failures are logged.
        let _ = self.flush_atimes();
        if let Some(writing) = &self.writing {
            writing.finish();
        }
        let mut unlinked = self.lookup_counts.take_unlinked();
        // Inodes whose counts an earlier daemon left too high.
        if self.resumable.is_some() {
            unlinked.extend(self.filesystem.unlinked());
            unlinked.sort_unstable();
            unlinked.dedup();
        }
        for number in unlinked {
            reaper.free(number);
        }
        reaper.end();
        if let Some(writing) = &self.writing {
            writing.end();
        }
        if let Err(error) = self.filesystem.finish() {
            tracing::error!(
                "cannot commit the last changes at unmount: {}; run e2fsck -f on the image",
                error.cause()
            );
        }
    }
}

impl std::fmt::Debug for Ext4 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ext4").field("kind", &self.filesystem.kind()).finish_non_exhaustive()
    }
}
