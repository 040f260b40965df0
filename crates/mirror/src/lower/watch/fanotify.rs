//! Change events of whole file systems through `fanotify(7)`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::super::sys::check;

/// Events of name changes, and of attribute changes other than those of data. Opens, reads and writes are excluded:
/// they would slow down each such call of every process on the file system.
const NAMES_AND_ATTRIBUTES: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO
    | libc::FAN_ATTRIB
    | libc::FAN_ONDIR;

/// A fanotify group.
#[derive(Debug)]
pub(crate) struct Fanotify {
    fd: OwnedFd,
    mask: AtomicU64,
}

impl Fanotify {
    /// Creates a group without marks.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN in the initial user namespace; EINVAL before Linux 5.17, which cannot report the
    /// object of an event; EMFILE at the limit of `fs.fanotify.max_user_groups`; ENOSYS.
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_DFID_NAME_TARGET;
        let modes = (libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC) as libc::c_uint;
        // SAFETY: takes numbers only.
        let fd = check(unsafe { libc::fanotify_init(flags, modes) }.into())?;
        // SAFETY: the kernel just returned this descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        Ok(Self { fd, mask: AtomicU64::new(NAMES_AND_ATTRIBUTES) })
    }

    /// Marks the file system of an open file (not O_PATH).
    ///
    /// # Errors
    /// ENODEV, EXDEV or EOPNOTSUPP if events cannot carry handles of its files; ENOSPC at the limit of
    /// `fs.fanotify.max_user_marks`.
    pub(crate) fn watch(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        let mask = self.mask.load(Ordering::Relaxed);
        // SAFETY: no path is given; the rest are numbers.
        let result = unsafe {
            libc::fanotify_mark(self.fd.as_raw_fd(), flags, mask, file.as_raw_fd(), std::ptr::null())
        };
        check(result.into()).map(drop)
    }

    /// Adds FAN_CLOSE_WRITE to the marks set from now on.
    pub(crate) fn add_close_write(&self) {
        self.mask.fetch_or(libc::FAN_CLOSE_WRITE, Ordering::Relaxed);
    }

    /// Reads as many events as are queued and fit; EAGAIN if there are none.
    ///
    /// # Errors
    /// The error of `read(2)`.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(&self.fd, buffer)
    }
}

impl AsFd for Fanotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
