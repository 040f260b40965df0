//! The image that a command is given.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use shunt_ext4::{Device, Error, FileDevice, Filesystem};

use super::block::BlockDevice;
use super::disk;
use super::lock::{self, Opened};
use crate::args::PlaceArgs;
use crate::error::{Code, Failure, Result, failed, usage};
use crate::serve::Claim;

/// An open image, or a block device.
pub struct Image {
    pub path: PathBuf,
    pub file: File,
    /// The whole of it.
    pub device: Arc<dyn Device>,
    /// It may be changed.
    pub writable: bool,
    /// It is a block device, and ours.
    pub claim: Option<Claim>,
    /// Where the journal lies, if not in the file system.
    pub journal: Option<Journal>,
}

/// What an external journal lies on.
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
    /// Opens an image to be looked into. Not one byte of it is written, and others may use it.
    pub fn open(path: &Path, journal: Option<&Path>) -> Result<Self> {
        // A pipe would be waited for.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let open = |path: &Path| {
            let opened = File::options().read(true).custom_flags(flags).open(path);
            opened.map_err(|error| cannot_open(path, &error))
        };
        let journal = journal.map(|path| Journal::new(path, open(path)?, false)).transpose()?;
        Self::new(path, Opened { file: open(path)?, writable: false, claim: None }, journal)
    }

    /// Opens an image to be mounted, and to be written if that is wanted and may be. Not one byte of it is read. `fd` is the
    /// open image, where the caller has it.
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
        // Of the two, what cannot be written decides.
        let may = |path: &Path, writable: bool| {
            if write && !writable {
                tracing::warn!("{} may not be written: mounted read-only", path.display());
            }
            writable
        };
        let journal_writable = journal.as_ref().is_none_or(|(path, opened)| may(path, opened.writable));
        image.writable = may(path, image.writable) && journal_writable;
        let journal = journal
            .map(|(path, journal)| Journal::new(path, journal.for_good(), image.writable))
            .transpose()?;
        Self::new(path, image, journal)
    }

    /// An image, and its journal, that another process opened.
    pub fn handed_over(path: &Path, fd: i32, journal: Option<(&Path, i32)>, writable: bool) -> Result<Self> {
        let journal = journal.map(|(path, fd)| Journal::new(path, inherited(fd)?, writable)).transpose()?;
        Self::new(path, Opened { file: inherited(fd)?, writable, claim: None }, journal)
    }

    /// Locks it and its journal for as long as they are open: nobody may change them meanwhile. Other parts of the image may be
    /// mounted beside this one.
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

    /// Opens the file system in this part of it, or in the whole, to be written.
    pub fn open_writable(&self, part: Option<Range<u64>>) -> Result<shunt_ext4::Result<Filesystem>> {
        let device = disk::window(&self.path, &self.device, part)?;
        Ok(Filesystem::open_writable_with_journal(device, self.journal()))
    }

    /// The same, to be read.
    pub fn open_to_read(&self, part: Option<Range<u64>>) -> Result<Filesystem> {
        let device = disk::window(&self.path, &self.device, part)?;
        Filesystem::open_with_journal(device, self.journal()).map_err(|error| self.cannot("read", &error))
    }

    /// Opens the file system that lies at this place of it, to be read.
    pub fn filesystem(&self, place: &PlaceArgs) -> Result<Filesystem> {
        self.open_to_read(disk::part(&self.path, &self.device, place)?)
    }

    fn journal(&self) -> Option<Arc<dyn Device>> {
        self.journal.as_ref().map(|journal| journal.device.clone())
    }

    /// The failure to open it, with what helps.
    pub fn cannot(&self, what: &str, error: &Error) -> Failure {
        let help = match error {
            Error::Journal(_) if self.journal.is_none() => "; name it with --journal",
            _ => "",
        };
        failed(format_args!("cannot {what} {}: {error}{help}", self.path.display()))
    }
}

/// The whole of an open file. The device has the lock of the file for as long as it lives.
fn device(path: &Path, file: &File, writable: bool) -> Result<Arc<dyn Device>> {
    let kind = file.metadata().map(|metadata| metadata.file_type());
    if kind.is_ok_and(|kind| !kind.is_file() && !kind.is_block_device()) {
        let path = path.display();
        return Err(failed(format_args!("{path} holds no image: give a regular file or a block device")));
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
        Err(error) => Err(failed(format_args!("cannot tell the size of {}: {error}", path.display()))),
    }
}

pub(super) fn cannot_open(path: &Path, error: &std::io::Error) -> Failure {
    let code = match error.kind() {
        std::io::ErrorKind::PermissionDenied => Code::Privilege,
        std::io::ErrorKind::ResourceBusy => Code::Busy,
        _ => Code::Failed,
    };
    Failure::new(code, format_args!("cannot open {}: {error}", path.display()))
}

/// A copy of a descriptor that the caller of this program left open.
fn inherited(fd: i32) -> Result<File> {
    // SAFETY: it is borrowed for the copy alone; where it is not open the copy fails.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let owned: OwnedFd = rustix::io::fcntl_dupfd_cloexec(borrowed, 3)
        .map_err(|error| usage(format_args!("--fd {fd}: {}", std::io::Error::from(error))))?;
    Ok(owned.into())
}
