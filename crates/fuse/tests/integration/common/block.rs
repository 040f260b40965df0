//! A block device to mount over.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

const SET_FD: libc::c_ulong = 0x4c00;
const CLEAR_FD: libc::c_ulong = 0x4c01;
const GET_FREE: libc::c_ulong = 0x4c82;

/// A loop device over a file; detached at the end.
pub struct Loop {
    pub path: PathBuf,
    device: File,
}

impl Loop {
    /// `None` where the machine has no loop devices.
    pub fn over(file: &Path) -> Option<Self> {
        if !Path::new("/dev/loop-control").exists() {
            Command::new("modprobe").arg("loop").status().ok();
        }
        let control = File::options().read(true).write(true).open("/dev/loop-control").ok()?;
        let backing = File::options().read(true).write(true).open(file).unwrap();
        // Somebody else may take the free one first.
        for _ in 0..20 {
            // SAFETY: no pointers are passed.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) };
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = File::options().read(true).write(true).open(&path).ok()?;
            // SAFETY: no pointers are passed.
            if unsafe { libc::ioctl(device.as_raw_fd(), SET_FD, backing.as_raw_fd()) } == 0 {
                return Some(Self { path, device });
            }
        }
        None
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // SAFETY: no pointers are passed.
        unsafe { libc::ioctl(self.device.as_raw_fd(), CLEAR_FD, 0) };
    }
}
