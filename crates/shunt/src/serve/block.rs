//! Block devices, which one alone may have at a time: who opened one exclusively, or the kernel's mount of it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use rustix::fs::OFlags;
use shunt_fuse::MountSessionError;
use shunt_fuse::mount::{MountError, MountOptions};

use crate::files;

/// A block device that is ours, for as long as this lives.
#[derive(Debug)]
pub struct Claim {
    exclusive: Option<File>,
    /// The same device, open to whoever has it.
    shared: File,
}

impl Claim {
    /// The claim of who opened the device exclusively.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn new(exclusive: File, write: bool) -> io::Result<Self> {
        let shared = again(&exclusive, OpenOptions::new().read(true).write(write))?;
        Ok(Self { exclusive: Some(exclusive), shared })
    }

    /// The device.
    ///
    /// # Errors
    /// No descriptor.
    pub fn file(&self) -> io::Result<File> {
        self.shared.try_clone()
    }

    /// What keeps it ours for as long as it, or a copy of it, is open.
    pub fn for_good(self) -> Option<File> {
        self.exclusive
    }

    fn give_up(&mut self) {
        self.exclusive = None;
    }

    fn take_back(&mut self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(OFlags::EXCL.bits().cast_signed());
        self.exclusive = Some(again(&self.shared, options)?);
        Ok(())
    }
}

/// Opens what is open once more.
fn again(file: &File, options: &OpenOptions) -> io::Result<File> {
    options.open(files::path_of(file))
}

/// A file system on a block device.
#[derive(Debug)]
pub struct Block {
    claim: Claim,
    /// Its path and the size of its blocks, where the kernel is to mount it. The device then is the kernel's, which passes
    /// `syncfs` and FIBMAP on, and has `umount` wait for the last commit.
    pub whole: Option<(PathBuf, u32)>,
}

/// What a try to mount came to.
pub enum Tried<T> {
    Done(T),
    Failed(MountSessionError),
    /// Somebody else has the device by now: not one byte of it may be written.
    Lost,
}

impl Block {
    pub fn new(claim: Claim, whole: Option<(PathBuf, u32)>) -> Self {
        Self { claim, whole }
    }

    /// Mounts it as a block device where that can be, else as anything that is served.
    pub fn mount<T>(
        &mut self,
        options: &MountOptions,
        mount: impl Fn(&MountOptions) -> Result<T, MountSessionError>,
    ) -> Tried<T> {
        let plainly = |error| match mount(options) {
            Ok(mounted) => {
                tracing::info!("not mounted as a block device: {error}");
                Tried::Done(mounted)
            }
            Err(error) => Tried::Failed(error),
        };
        let Some((device, block_size)) = &self.whole else {
            return mount(options).map_or_else(Tried::Failed, Tried::Done);
        };
        self.claim.give_up();
        // Larger ones the kernel does not know.
        let block_size = (*block_size).min(rustix::param::page_size() as u32);
        let error = match mount(&options.clone().blkdev(device).blksize(block_size)) {
            Ok(mounted) => return Tried::Done(mounted),
            Err(error) => error,
        };
        match (self.claim.take_back(), &error) {
            (Err(_), _) => Tried::Lost,
            // Not the kernel's mount was at fault.
            (Ok(()), MountSessionError::Mount(MountError::Kernel { .. } | MountError::NoDevice(_))) => {
                plainly(error)
            }
            (Ok(()), _) => Tried::Failed(error),
        }
    }
}
