//! File leases (`fcntl(F_SETLEASE)`), used as a test for writers: the kernel grants a read lease only where no process has the file
//! open for writing.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

/// `F_SETSIG`, which the libc crate does not define.
const F_SETSIG: libc::c_int = 10;

fn call(file: BorrowedFd<'_>, command: libc::c_int, value: libc::c_int) -> Result<(), Errno> {
    // SAFETY: these commands take a number, and the descriptor is open as long as it is borrowed.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, value) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)),
    }
}

/// Takes a read lease and releases it. EAGAIN: the file is open for writing.
pub(crate) fn read_lease(file: BorrowedFd<'_>) -> Result<(), Errno> {
    // The kernel signals this process if the file is opened in between: by SIGURG, which is ignored, not by the default SIGIO,
    // which kills.
    call(file, F_SETSIG, libc::SIGURG)?;
    call(file, libc::F_SETLEASE, libc::F_RDLCK)?;
    call(file, libc::F_SETLEASE, libc::F_UNLCK)
}
