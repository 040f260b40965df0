//! Exclusive use of a block device: by the process that opened it with O_EXCL, or by the kernel's mount of it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use rustix::fs::OFlags;
use shunt_fuse::MountSessionError;
use shunt_fuse::mount::{MountError, MountOptions};
use shunt_fuse::takeover::Takeover;

use crate::files;

/// Id of the claim among the descriptors that a daemon leaves to its successor, which only has to keep it open.
pub const CLAIM: u64 = 0;

/// An exclusive claim of a block device, for as long as this lives.
#[derive(Debug)]
pub struct ExclusiveClaim {
    exclusive: Option<File>,
    /// The device without O_EXCL, for use while another opener has it exclusively.
    shared: File,
}

impl ExclusiveClaim {
    /// Makes a claim from an exclusively opened device.
    ///
    /// # Errors
    /// The errors of `open(2)`.
    pub fn new(exclusive: File, write: bool) -> io::Result<Self> {
        let shared = reopen(&exclusive, OpenOptions::new().read(true).write(write))?;
        Ok(Self { exclusive: Some(exclusive), shared })
    }

    /// A descriptor of the device.
    ///
    /// # Errors
    /// The descriptor cannot be duplicated.
    pub fn file(&self) -> io::Result<File> {
        self.shared.try_clone()
    }

    /// Returns the exclusive descriptor, which keeps the claim for as long as it, or a duplicate of it, is open.
    pub fn into_exclusive(self) -> Option<File> {
        self.exclusive
    }

    /// Returns the path of the device.
    ///
    /// # Errors
    /// The errors of `readlink(2)`.
    pub fn path(&self) -> io::Result<PathBuf> {
        fs::read_link(files::path_of(&self.shared))
    }

    fn release(&mut self) {
        self.exclusive = None;
    }

    fn reacquire(&mut self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(OFlags::EXCL.bits().cast_signed());
        self.exclusive = Some(reopen(&self.shared, options)?);
        Ok(())
    }
}

/// Reopens an open file.
fn reopen(file: &File, options: &OpenOptions) -> io::Result<File> {
    options.open(files::path_of(file))
}

/// A file system on a block device.
#[derive(Debug)]
pub struct Block {
    claim: ExclusiveClaim,
    /// Its path and block size, if the kernel is to mount it (`fuseblk`). The kernel then claims the device, forwards `syncfs`
    /// and FIBMAP, and has `umount` wait for the last commit.
    pub whole: Option<(PathBuf, u32)>,
}

/// The result of an attempt to mount.
pub enum MountAttempt<T> {
    Done(T),
    Failed(MountSessionError),
    /// Another process has claimed the device meanwhile: it must not be written any more.
    Lost,
}

impl Block {
    pub fn new(claim: ExclusiveClaim, whole: Option<(PathBuf, u32)>) -> Self {
        Self { claim, whole }
    }

    /// Has the claim outlive this process, if it is not the kernel's.
    pub fn keep(&self, takeover: &Takeover) {
        if let Some(exclusive) = &self.claim.exclusive {
            takeover.store(CLAIM, exclusive.as_fd());
        }
    }

    /// Mounts it as a block device if possible, else like any FUSE file system.
    pub fn mount<T>(
        &mut self,
        options: &MountOptions,
        mount: impl Fn(&MountOptions) -> Result<T, MountSessionError>,
    ) -> MountAttempt<T> {
        let plainly = |error| match mount(options) {
            Ok(mounted) => {
                tracing::info!("not mounted as a block device: {error}");
                MountAttempt::Done(mounted)
            }
            Err(error) => MountAttempt::Failed(error),
        };
        let Some((device, block_size)) = &self.whole else {
            return mount(options).map_or_else(MountAttempt::Failed, MountAttempt::Done);
        };
        self.claim.release();
        // The kernel supports block sizes up to that of a page.
        let block_size = (*block_size).min(rustix::param::page_size() as u32);
        let error = match mount(&options.clone().blkdev(device).blksize(block_size)) {
            Ok(mounted) => return MountAttempt::Done(mounted),
            Err(error) => error,
        };
        match (self.claim.reacquire(), &error) {
            (Err(_), _) => MountAttempt::Lost,
            // The device could be claimed again, so nothing else uses it: mount without it.
            (Ok(()), MountSessionError::Mount(MountError::Kernel { .. } | MountError::NoDevice(_))) => {
                plainly(error)
            }
            (Ok(()), _) => MountAttempt::Failed(error),
        }
    }
}
