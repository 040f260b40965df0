//! The kernel's word on changes of whole file systems (`fanotify(7)`).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::super::sys::check;

/// What changes names, and what changes attributes of anything but a file's data. Opens, reads and writes are not
/// asked for: they would cost everybody on the file system at each call.
const NAMES_AND_ATTRIBUTES: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO
    | libc::FAN_ATTRIB
    | libc::FAN_ONDIR;

/// A listener for changes.
#[derive(Debug)]
pub struct Fanotify {
    fd: OwnedFd,
    mask: AtomicU64,
}

impl Fanotify {
    /// A listener that hears nothing yet.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN in the initial user namespace; EINVAL before Linux 5.17, which cannot name the
    /// object of an event; EMFILE at the limit of `fs.fanotify.max_user_groups`; ENOSYS.
    pub fn new() -> Result<Self, Errno> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_DFID_NAME_TARGET;
        let modes = (libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC) as libc::c_uint;
        // SAFETY: takes numbers only.
        let fd = check(unsafe { libc::fanotify_init(flags, modes) }.into())?;
        // SAFETY: the kernel just gave us this descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        Ok(Self { fd, mask: AtomicU64::new(NAMES_AND_ATTRIBUTES) })
    }

    /// Listens to the file system of an open file (not O_PATH).
    ///
    /// # Errors
    /// ENODEV, EXDEV, EOPNOTSUPP where its files cannot be named in events; ENOSPC at the limit of
    /// `fs.fanotify.max_user_marks`.
    pub fn watch(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        let mask = self.mask.load(Ordering::Relaxed);
        // SAFETY: no path is given; the rest are numbers.
        let result = unsafe {
            libc::fanotify_mark(self.fd.as_raw_fd(), flags, mask, file.as_raw_fd(), std::ptr::null())
        };
        check(result.into()).map(drop)
    }

    /// Listens also to the end of writing, on file systems that are watched from now on.
    pub fn add_close_write(&self) {
        self.mask.fetch_or(libc::FAN_CLOSE_WRITE, Ordering::Relaxed);
    }

    /// Reads events, as many as fit and are there; none is EAGAIN.
    ///
    /// # Errors
    /// Those of `read(2)`.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(&self.fd, buffer)
    }
}

impl AsFd for Fanotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
