//! Opens the image of a command, with its journal, and locks it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use shunt_ext4::{Device, Error, FileDevice, Filesystem, Outcome, SharedMemory};

use super::block::BlockDevice;
use super::disk;
use super::lock::{self, Opened, cannot_open};
use crate::args::LocationArgs;
use crate::error::{Failure, Result, failed, usage};
use crate::serve::ExclusiveClaim;

/// An open image or block device, and its external journal if it has one.
pub struct Image {
    pub path: PathBuf,
    pub file: File,
    /// The device of the whole image.
    pub device: Arc<dyn Device>,
    /// The image may be modified.
    pub writable: bool,
    /// The exclusive claim of a block device.
    pub claim: Option<ExclusiveClaim>,
    /// The external journal, if the file system has one.
    pub journal: Option<Journal>,
}

/// The device or file of an external journal.
pub struct Journal {
    path: PathBuf,
    pub file: File,
    device: Arc<dyn Device>,
}

impl Journal {
    fn new(path: &Path, file: File, writable: bool) -> Result<Self> {
        Ok(Self { path: path.to_owned(), device: device(path, &file, writable)?, file })
    }
}

impl Image {
    /// Opens an image for inspection. It is never written, and others may use it.
    pub fn open(path: &Path, journal: Option<&Path>) -> Result<Self> {
        // O_NONBLOCK: opening a FIFO would block.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let open = |path: &Path| {
            let opened = File::options().read(true).custom_flags(flags).open(path);
            opened.map_err(|error| cannot_open(path, &error))
        };
        let journal = journal.map(|path| Journal::new(path, open(path)?, false)).transpose()?;
        Self::new(path, Opened { file: open(path)?, writable: false, claim: None }, journal)
    }

    /// Opens an image to be mounted, read-write if that is requested and permitted. None of it is read here. `fd` is the open
    /// image, if the caller passed it.
    pub fn open_to_mount(path: &Path, journal: Option<&Path>, fd: Option<i32>, write: bool) -> Result<Self> {
        let journal = journal.map(|path| lock::open(path, write).map(|opened| (path, opened))).transpose()?;
        let mut image = match fd {
            Some(fd) => {
                let file = inherited(fd)?;
                let flags = rustix::fs::fcntl_getfl(&file).unwrap_or(OFlags::empty());
                Opened { file, writable: write && flags & OFlags::RWMODE == OFlags::RDWR, claim: None }
            }
            None => lock::open(path, write)?,
        };
        // The mount is writable only if both image and journal are.
        let may = |path: &Path, writable: bool| {
            if write && !writable {
                tracing::warn!("{} is mounted read-only: no permission to write it", path.display());
            }
            writable
        };
        let journal_writable = journal.as_ref().is_none_or(|(path, opened)| may(path, opened.writable));
        image.writable = may(path, image.writable) && journal_writable;
        let journal = journal
            .map(|(path, journal)| Journal::new(path, journal.into_file(), image.writable))
            .transpose()?;
        Self::new(path, image, journal)
    }

    /// Wraps the open image and journal of an earlier daemon, which hold its locks.
    pub fn resumed(path: &Path, file: File, journal: Option<(&Path, File)>, writable: bool) -> Result<Self> {
        let journal = journal.map(|(path, file)| Journal::new(path, file, writable)).transpose()?;
        Self::new(path, Opened { file, writable, claim: None }, journal)
    }

    /// Wraps the descriptors of an image and its journal that another process opened.
    pub fn handed_over(path: &Path, fd: i32, journal: Option<(&Path, i32)>, writable: bool) -> Result<Self> {
        let journal = journal.map(|(path, fd)| Journal::new(path, inherited(fd)?, writable)).transpose()?;
        Self::new(path, Opened { file: inherited(fd)?, writable, claim: None }, journal)
    }

    /// Locks the image and its journal for as long as they are open, so that no other program changes them. Other parts of the
    /// image may be mounted at the same time.
    pub fn lock(&self, part: Option<Range<u64>>) -> Result<()> {
        lock::take(&self.path, &self.file, self.writable, part)?;
        let journal = self.journal.as_ref();
        journal.map_or(Ok(()), |journal| lock::take(&journal.path, &journal.file, self.writable, None))
    }

    fn new(path: &Path, opened: Opened, journal: Option<Journal>) -> Result<Self> {
        let Opened { file, writable, claim } = opened;
        let device = device(path, &file, writable)?;
        Ok(Self { path: path.to_owned(), file, device, writable, claim, journal })
    }

    /// Opens the file system in this part of the image, or in all of it, read-write.
    pub fn open_writable(&self, part: Option<Range<u64>>) -> Result<shunt_ext4::Result<Filesystem>> {
        let device = disk::window(&self.path, &self.device, part)?;
        Ok(Filesystem::open_writable_with_journal(device, self.journal()))
    }

    /// Opens the file system like [`open_writable`](Self::open_writable); `memory` is for the process that continues after this one.
    pub fn open_resumable(
        &self,
        part: Option<Range<u64>>,
        memory: SharedMemory,
    ) -> Result<shunt_ext4::Result<Filesystem>> {
        let device = disk::window(&self.path, &self.device, part)?;
        Ok(Filesystem::open_resumable(device, self.journal(), memory))
    }

    /// Continues with the file system of an earlier daemon, which left this memory.
    pub fn resume(
        &self,
        part: Option<Range<u64>>,
        memory: SharedMemory,
    ) -> Result<shunt_ext4::Result<(Filesystem, Vec<Outcome>)>> {
        let device = disk::window(&self.path, &self.device, part)?;
        Ok(Filesystem::resume(device, self.journal(), memory))
    }

    /// Opens the file system in this part of the image, or in all of it, read-only.
    pub fn open_to_read(&self, part: Option<Range<u64>>) -> Result<Filesystem> {
        let device = disk::window(&self.path, &self.device, part)?;
        Filesystem::open_with_journal(device, self.journal()).map_err(|error| self.failure("read", &error))
    }

    /// Opens the file system at the location given on the command line, read-only.
    pub fn filesystem(&self, location: &LocationArgs) -> Result<Filesystem> {
        self.open_to_read(disk::part(&self.path, &self.device, location)?)
    }

    fn journal(&self) -> Option<Arc<dyn Device>> {
        self.journal.as_ref().map(|journal| journal.device.clone())
    }

    /// The error of opening the file system, with a hint at the missing option.
    pub fn failure(&self, operation: &str, error: &Error) -> Failure {
        let help = match error {
            Error::Journal(_) if self.journal.is_none() => "; name it with --journal",
            _ => "",
        };
        failed(format_args!("cannot {operation} {}: {error}{help}", self.path.display()))
    }
}

/// The device of an open file. It holds a duplicate of the descriptor, and thereby the file's lock, for as long as it lives.
fn device(path: &Path, file: &File, writable: bool) -> Result<Arc<dyn Device>> {
    let kind = file.metadata().map(|metadata| metadata.file_type());
    if kind.is_ok_and(|kind| !kind.is_file() && !kind.is_block_device()) {
        let path = path.display();
        return Err(failed(format_args!(
            "cannot open {path}: not an image; give a regular file or a block device"
        )));
    }
    let opened = || -> io::Result<Arc<dyn Device>> {
        let (file, is_block) = (file.try_clone()?, file.metadata()?.file_type().is_block_device());
        Ok(match is_block {
            true => Arc::new(BlockDevice::new(file, !writable)?),
            false => Arc::new(FileDevice::new(file, !writable)?),
        })
    };
    match opened() {
        Ok(device) => Ok(device),
        Err(error) => Err(failed(format_args!("cannot determine the size of {}: {error}", path.display()))),
    }
}

/// A duplicate of a descriptor that the caller of this program passed.
fn inherited(fd: i32) -> Result<File> {
    // SAFETY: it is borrowed only for the duplication, which fails if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let owned: OwnedFd = rustix::io::fcntl_dupfd_cloexec(borrowed, 3)
        .map_err(|error| usage(format_args!("cannot use --fd {fd}: {}", std::io::Error::from(error))))?;
    Ok(owned.into())
}
