//! Counts the requests that the kernel sends to one FUSE mount, whatever program serves it.
//!
//! The kernel's tracepoints are read through perf in counting mode: a filter and an increment per request, no records. So every
//! peer is counted, also peers without statistics of their own.

use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const PERF_EVENT_IOC_SET_FILTER: libc::c_ulong = 0x4008_2406;
/// The opcode of GETXATTR on the wire.
pub const GETXATTR: u32 = 22;

/// The first 64 bytes of `perf_event_attr`, its first published size.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    unused: [u64; 6],
}

/// The ids of the two tracepoints in perf.
#[derive(Debug, Clone, Copy)]
pub struct Tracepoints {
    sent: u64,
    ended: u64,
}

impl Tracepoints {
    /// Reads the ids from a tracefs that is mounted at `at` meanwhile.
    ///
    /// # Errors
    /// When the kernel has no FUSE tracepoints (they came with 6.10), or without root.
    pub fn find(at: &Path) -> Result<Self> {
        fs::create_dir_all(at)?;
        mount("tracefs", at, "tracefs", MountFlags::empty(), None::<&std::ffi::CStr>)?;
        let id = |name: &str| -> Result<u64> {
            let path = at.join("events/fuse").join(name).join("id");
            Ok(fs::read_to_string(path).context("this kernel has no FUSE tracepoints")?.trim().parse()?)
        };
        let found =
            id("fuse_request_send").and_then(|sent| Ok(Self { sent, ended: id("fuse_request_end")? }));
        unmount(at, UnmountFlags::DETACH)?;
        let _ = fs::remove_dir(at);
        found
    }
}

/// A running count of one connection's requests.
#[derive(Debug)]
pub struct Counter(Vec<fs::File>);

impl Counter {
    /// Counts every answered request of `connection`, whatever its transport. FORGET has no answer and
    /// is not counted.
    ///
    /// # Errors
    /// When perf refuses.
    pub fn all(points: Tracepoints, connection: u32) -> Result<Self> {
        Self::new(points.ended, &format!("connection == {connection}"))
    }

    /// Counts the requests of one `opcode` sent to `connection`.
    ///
    /// # Errors
    /// When perf refuses.
    pub fn of(points: Tracepoints, connection: u32, opcode: u32) -> Result<Self> {
        Self::new(points.sent, &format!("connection == {connection} && opcode == {opcode}"))
    }

    fn new(tracepoint: u64, filter: &str) -> Result<Self> {
        let filter = std::ffi::CString::new(filter)?;
        let cores = std::thread::available_parallelism()?.get();
        let mut files = Vec::with_capacity(cores);
        for core in 0..cores {
            let file = open(tracepoint, core)?;
            // SAFETY: the request takes a string that ends in NUL and is only read during the call.
            let done = unsafe { libc::ioctl(file.as_raw_fd(), PERF_EVENT_IOC_SET_FILTER, filter.as_ptr()) };
            if done < 0 {
                bail!("set the filter of a tracepoint: {}", std::io::Error::last_os_error());
            }
            files.push(file.into());
        }
        Ok(Self(files))
    }

    /// The count since the counter was made.
    ///
    /// # Errors
    /// When a read fails.
    pub fn read(&self) -> Result<u64> {
        let mut total = 0;
        for mut file in &self.0 {
            let mut count = [0; 8];
            file.read_exact(&mut count)?;
            total += u64::from_ne_bytes(count);
        }
        Ok(total)
    }
}

fn open(tracepoint: u64, core: usize) -> Result<OwnedFd> {
    let size = u32::try_from(size_of::<Attributes>())?;
    let attributes =
        Attributes { kind: PERF_TYPE_TRACEPOINT, size, config: tracepoint, ..Attributes::default() };
    let core = libc::c_int::try_from(core)?;
    // SAFETY: the structure is as long as its size field says and is only read during the call;
    // the other arguments are plain numbers (any process, this core, no group).
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, core, -1, PERF_FLAG_FD_CLOEXEC)
    };
    if fd < 0 {
        bail!("perf_event_open: {}", std::io::Error::last_os_error());
    }
    // SAFETY: the call just returned this descriptor and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(libc::c_int::try_from(fd)?) })
}
