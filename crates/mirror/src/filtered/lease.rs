//! Times in which nobody can change a file: while it has a read lease (`fcntl(2)`, F_SETLEASE).
//!
//! The kernel grants one only where nobody has the file open for writing, nor mapped so, and whoever opens it so or cuts
//! it meanwhile waits until the lease is given back, which is a read later. Who waits is let by first.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::sync::Once;

use parking_lot::Mutex;
use rustix::io::Errno;

/// How many use the lease of one open file.
#[derive(Debug, Default)]
pub struct Leases(Mutex<u32>);

/// The file stays as it is as long as this lives, or until [`held`](Self::held) says otherwise.
#[derive(Debug)]
pub struct Lease<'a> {
    leases: &'a Leases,
    file: BorrowedFd<'a>,
}

impl Leases {
    /// Takes one; none where somebody writes, or waits to.
    pub(super) fn take<'a>(&'a self, file: &'a impl AsFd) -> Option<Lease<'a>> {
        self.try_take(file).ok()
    }

    /// Takes a lease on a file that is open for reading only.
    ///
    /// # Errors
    /// EAGAIN where somebody writes, or waits to; EACCES where the file is another user's and the process has no
    /// CAP_LEASE; EINVAL where the file system has no leases.
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
    /// Whether it was held all the time: who waits too long is let by. In doubt it was not.
    pub fn held(&self) -> bool {
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
    // Whoever wants to write is told by SIGIO, which ends a process that did not ask for it.
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

/// Whether there is one that nobody waits for.
fn is_read(file: BorrowedFd<'_>) -> bool {
    // SAFETY: numbers only.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) == libc::F_RDLCK }
}
