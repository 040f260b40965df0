//! A file as a block device.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::calls::{self, LoopConfig};

const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;

/// Somebody else may take the device that was free a moment ago.
const TRIES: u32 = 64;

/// Makes a loop device of a file, to be read. It goes when the last descriptor of it is closed; until then it has `file`
/// open, and so keeps a lock (`flock`) that was taken on it.
///
/// # Errors
/// EACCES without root, ENOENT without loop devices, EBUSY where others are always faster.
pub fn attach(file: impl AsFd) -> io::Result<File> {
    configure(&LoopConfig::new(file.as_fd(), READ_ONLY | AUTOCLEAR), false)
}

/// As [`attach`], to be written as well.
///
/// # Errors
/// As `attach`.
pub fn attach_writable(file: impl AsFd) -> io::Result<File> {
    configure(&LoopConfig::new(file.as_fd(), AUTOCLEAR), true)
}

fn configure(config: &LoopConfig, write: bool) -> io::Result<File> {
    let control = File::open("/dev/loop-control")?;
    for _ in 0..TRIES {
        let number = calls::free_loop(control.as_fd())?;
        let device = OpenOptions::new().read(true).write(write).open(format!("/dev/loop{number}"))?;
        match calls::configure_loop(device.as_fd(), config) {
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {}
            done => return done.map(|()| device),
        }
    }
    Err(Errno::BUSY.into())
}
