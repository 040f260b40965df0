//! Nobody else may change an image that is mounted: not another daemon, not the kernel.
//!
//! A block device is opened exclusively, which the kernel's own mounts respect. A file takes an advisory lock, which other
//! mounts of shunt respect; the kernel uses files by way of loop devices, which are looked for.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::image::cannot_open;
use crate::error::{Code, Failure, Result, failed};

/// Opens an image, a block device for ourselves alone. Tells whether it may be written: what must not be is read.
pub fn open(path: &Path, write: bool) -> Result<(File, bool)> {
    let try_open = |write: bool| {
        let mut options = OpenOptions::new();
        options.read(true).write(write);
        // On anything else the flag has no meaning without O_CREAT.
        if fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()) {
            options.custom_flags(OFlags::EXCL.bits().cast_signed());
        }
        options.open(path).map(|file| (file, write))
    };
    let opened = match try_open(write) {
        Err(error)
            if write
                && matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
        {
            try_open(false)
        }
        opened => opened,
    };
    opened.map_err(|error| match error.kind() {
        ErrorKind::ResourceBusy => {
            in_use(path, "the kernel has it mounted, or another program has it for itself")
        }
        _ => cannot_open(path, &error),
    })
}

/// Locks an open image for as long as it is open; several may read it.
pub fn take(path: &Path, file: &File, write: bool) -> Result<()> {
    let how = match write {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    match flock(file, how) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let who = holder(file).unwrap_or_else(|| "another program".to_owned());
            return Err(in_use(path, &format!("{who} has locked it")));
        }
        Err(errno) => {
            let error = std::io::Error::from(errno);
            return Err(failed(format_args!("cannot lock {}: {error}", path.display())));
        }
    }
    match loop_device(file, write) {
        Some(device) => {
            let device = device.display();
            Err(in_use(
                path,
                &format!("it is the loop device {device}: detach it with `losetup -d {device}`"),
            ))
        }
        None => Ok(()),
    }
}

fn in_use(path: &Path, why: &str) -> Failure {
    Failure::new(Code::Busy, format_args!("{} is in use: {why}", path.display()))
}

/// The process that has a lock on this file, where `/proc` tells.
fn holder(file: &File) -> Option<String> {
    let ours = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(ours.dev()), rustix::fs::minor(ours.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", ours.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // As in `1: FLOCK  ADVISORY  WRITE 4711 fd:00:1234 0 EOF`.
    let pid = locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(4);
        let pid = words.next()?;
        (words.next()? == place).then_some(pid)
    })?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("process {pid} ({})", name.trim_end()))
}

/// A loop device through which the kernel may write to this file, or read it while we write.
fn loop_device(file: &File, write: bool) -> Option<PathBuf> {
    let ours = file.metadata().ok()?;
    let devices = fs::read_dir("/sys/block").ok()?.flatten();
    devices.map(|entry| entry.path()).find_map(|block| {
        // Devices that are not attached have no such file.
        let backing = fs::read_to_string(block.join("loop/backing_file")).ok()?;
        let theirs = fs::metadata(backing.trim_end_matches('\n')).ok()?;
        let writes = fs::read_to_string(block.join("ro")).ok()?.trim_end() == "0";
        let in_the_way = writes || write;
        let same = (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino());
        (same && in_the_way).then(|| Path::new("/dev").join(block.file_name().unwrap_or_default()))
    })
}
