//! The image that a command is given.

use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use shunt_ext4::{Device, FileDevice, Filesystem};

use super::disk;
use super::lock;
use crate::args::PlaceArgs;
use crate::error::{Code, Failure, Result, failed, usage};

/// An open image, or a block device.
pub struct Image {
    pub path: PathBuf,
    pub file: File,
    /// The whole of it.
    pub device: Arc<dyn Device>,
    /// It may be changed.
    pub writable: bool,
}

impl Image {
    /// Opens an image to be looked into. Not one byte of it is written, and others may use it.
    pub fn open(path: &Path) -> Result<Self> {
        Self::new(path, File::open(path).map_err(|error| cannot_open(path, &error))?, false)
    }

    /// Opens an image to be mounted, and to be written if that is wanted and may be: nobody may change it meanwhile. `fd` is
    /// the open image, where the caller has it.
    pub fn open_to_mount(path: &Path, fd: Option<i32>, write: bool) -> Result<Self> {
        let (file, writable) = match fd {
            Some(fd) => {
                let file = inherited(fd)?;
                let flags = rustix::fs::fcntl_getfl(&file).unwrap_or(OFlags::empty());
                (file, write && flags & OFlags::RWMODE == OFlags::RDWR)
            }
            None => lock::open(path, write)?,
        };
        lock::take(path, &file, writable)?;
        if write && !writable {
            tracing::warn!("{} may not be written: mounted read-only", path.display());
        }
        Self::new(path, file, writable)
    }

    fn new(path: &Path, file: File, writable: bool) -> Result<Self> {
        let device = file
            .try_clone()
            .and_then(|file| FileDevice::new(file, !writable))
            .map_err(|error| failed(format_args!("cannot tell the size of {}: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), file, device: Arc::new(device), writable })
    }

    /// Opens the file system that lies at this place of it, to be written.
    pub fn writable_filesystem(&self, place: &PlaceArgs) -> Result<shunt_ext4::Result<Filesystem>> {
        Ok(Filesystem::open_writable(disk::find(&self.path, &self.device, place)?))
    }

    /// Opens the file system that lies at this place of it, to be read.
    pub fn filesystem(&self, place: &PlaceArgs) -> Result<Filesystem> {
        let device = disk::find(&self.path, &self.device, place)?;
        Filesystem::open(device)
            .map_err(|error| failed(format_args!("cannot read {}: {error}", self.path.display())))
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
