//! A FUSE server with one directory and no library: one thread on `/dev/fuse`, and optionally rings beside it.

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use super::{affinity, ring, wire};

/// Mounts at `mount_point` and answers requests until it is unmounted.
///
/// # Errors
/// Without root or `/dev/fuse`; with `rings`, when the kernel does not offer them.
pub fn serve(mount_point: &Path, core: Option<usize>, rings: bool) -> Result<()> {
    if let Some(core) = core {
        affinity::pin(core)?;
    }
    let device =
        rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).context("/dev/fuse")?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("shunt-bench", mount_point, "fuse", flags, CString::new(options)?.as_c_str()).context("mount")?;
    let device = Arc::new(device);
    // The kernel fails the read of a reader whose buffer is smaller than the largest request.
    let mut buffer = vec![0; 1 << 18];
    loop {
        let length = match rustix::io::read(&device, &mut buffer) {
            Ok(length) => length,
            Err(Errno::NODEV) => return Ok(()),
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
            Err(error) => return Err(error).context("read /dev/fuse"),
        };
        let Some(request) = wire::parse(&buffer[..length]) else { continue };
        let init = request.opcode == wire::INIT;
        let reply = if init { Some(wire::init(request, rings)) } else { wire::answer(request) };
        let Some(reply) = reply else { continue };
        match rustix::io::write(&device, &reply.bytes()) {
            // The request was interrupted, or the file system was unmounted, which the next read reports.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(error) => return Err(error).context("write /dev/fuse"),
        }
        if init && rings {
            ring::serve(&device, core)?;
        }
    }
}
