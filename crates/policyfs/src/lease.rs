//! Read leases (`fcntl(2)`, F_SETLEASE), under which a file cannot change.
//!
//! The kernel grants a lease only while no process has the file open for writing or mapped writable. A process that
//! opens it for writing or truncates it meanwhile blocks until the lease is released, which is one read later. A
//! blocked writer has precedence over a new lease.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::sync::Once;

use parking_lot::Mutex;
use rustix::io::Errno;

/// Reference count of the lease on one open file.
#[derive(Debug, Default)]
pub struct Leases(Mutex<u32>);

/// A lease: the file does not change while it exists, unless [`is_intact`](Self::is_intact) returns `false`.
#[derive(Debug)]
pub struct Lease<'a> {
    leases: &'a Leases,
    file: BorrowedFd<'a>,
}

impl Leases {
    /// Takes a lease; `None` if a process writes the file or waits to write it.
    pub(crate) fn take<'a>(&'a self, file: &'a impl AsFd) -> Option<Lease<'a>> {
        self.try_take(file).ok()
    }

    /// Takes a lease on a file that is open for reading only.
    ///
    /// # Errors
    /// EAGAIN if a process writes the file or waits to; EACCES if another user owns the file and the process lacks
    /// CAP_LEASE; EINVAL if the file system does not support leases.
    pub fn try_take<'a>(&'a self, file: &'a impl AsFd) -> Result<Lease<'a>, Errno> {
        let file = file.as_fd();
        let mut users = self.0.lock();
        match *users {
            0 => set(file, libc::F_RDLCK)?,
            _ if is_read(file) => {}
            _ => return Err(Errno::AGAIN),
        }
        *users += 1;
        Ok(Lease { leases: self, file })
    }
}

impl Lease<'_> {
    /// Reports whether the lease was held all the time. The kernel breaks a lease on which a writer waits too long.
    /// Doubt counts as not held.
    pub fn is_intact(&self) -> bool {
        is_read(self.file)
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut users = self.leases.0.lock();
        *users -= 1;
        if *users == 0 {
            let _ = set(self.file, libc::F_UNLCK);
        }
    }
}

fn set(file: BorrowedFd<'_>, kind: libc::c_int) -> Result<(), Errno> {
    static DEAF: Once = Once::new();
    // The kernel reports a waiting writer by SIGIO, which by default terminates the process.
    DEAF.call_once(|| {
        // SAFETY: SIG_IGN runs no code of ours.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    });
    // SAFETY: numbers only.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Reports whether a read lease is held and no writer waits for it.
fn is_read(file: BorrowedFd<'_>) -> bool {
    // SAFETY: numbers only.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) == libc::F_RDLCK }
}
