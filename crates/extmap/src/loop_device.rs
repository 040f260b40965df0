//! Loop devices, for images that are not on a block device of their own.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::calls::{self, LoopConfig};

const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;

/// Number of attempts: another process may take the free device first.
const MAX_ATTEMPTS: u32 = 64;

/// Attaches a file to a read-only loop device. The kernel detaches it when its last descriptor is closed; until then the device
/// keeps `file` open, and with it a lock (`flock`) that was taken on it.
///
/// # Errors
/// EACCES without root, ENOENT without loop devices, EBUSY if other processes take each free device first.
pub fn attach(file: impl AsFd) -> io::Result<File> {
    configure(&LoopConfig::new(file.as_fd(), READ_ONLY | AUTOCLEAR), OpenOptions::new().read(true))
}

/// Like [`attach`], for a writable device.
///
/// # Errors
/// The errors of `attach`.
pub fn attach_writable(file: impl AsFd) -> io::Result<File> {
    configure(&LoopConfig::new(file.as_fd(), AUTOCLEAR), OpenOptions::new().read(true).write(true))
}

/// Like [`attach_writable`], and opens the device exclusively (`O_EXCL`) before it is attached, so that nobody can mount it.
///
/// # Errors
/// The errors of `attach`.
pub fn attach_exclusive(file: impl AsFd) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::EXCL.bits().cast_signed());
    configure(&LoopConfig::new(file.as_fd(), AUTOCLEAR), &options)
}

fn configure(config: &LoopConfig, options: &OpenOptions) -> io::Result<File> {
    let control = File::open("/dev/loop-control")?;
    let is_busy = |error: &io::Error| error.raw_os_error() == Some(Errno::BUSY.raw_os_error());
    for _ in 0..MAX_ATTEMPTS {
        let number = calls::free_loop(control.as_fd())?;
        let attached = options.open(format!("/dev/loop{number}")).and_then(|device| {
            calls::configure_loop(device.as_fd(), config)?;
            Ok(device)
        });
        match attached {
            Err(error) if is_busy(&error) => {}
            attached => return attached,
        }
    }
    Err(Errno::BUSY.into())
}
