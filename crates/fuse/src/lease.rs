//! Leases of files, which tell whether somebody writes to them.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

/// Which the library does not name.
const F_SETSIG: libc::c_int = 10;

fn call(file: BorrowedFd<'_>, command: libc::c_int, value: libc::c_int) -> Result<(), Errno> {
    // SAFETY: these commands take a number, and the descriptor is open as long as it is borrowed.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, value) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)),
    }
}

/// Takes a lease for reading, and gives it back. EAGAIN: somebody can write.
pub(crate) fn read_lease(file: BorrowedFd<'_>) -> Result<(), Errno> {
    // Who opens the file in between has this process told so: by a signal that does nothing, unlike the usual one.
    call(file, F_SETSIG, libc::SIGURG)?;
    call(file, libc::F_SETLEASE, libc::F_RDLCK)?;
    call(file, libc::F_SETLEASE, libc::F_UNLCK)
}
