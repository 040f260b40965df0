//! Data operations on open files other than plain read and write: allocation, copy, seek and sync.

use std::os::fd::BorrowedFd;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::super::credentials::KeepSetid;
use super::super::{Caller, Lower};

/// Maximum bytes per copy. The kernel continues with another request, and the caller can be killed in between.
const MAX_COPY_BYTES: usize = 16 << 20;

/// Maximum bytes per fallocate step; the caller can be killed between two steps.
const MAX_FALLOCATE_STEP_BYTES: u64 = 1 << 30;

impl Lower {
    /// Runs a write by `caller` to `file`. `kill_setid` clears setuid and setgid, as the kernel does for writers
    /// without CAP_FSETID.
    ///
    /// # Errors
    /// The error of `write`.
    pub(crate) fn writing<T>(
        &self,
        file: BorrowedFd<'_>,
        kill_setid: bool,
        caller: Caller,
        write: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if kill_setid {
            let _member = self.as_member(file, caller)?;
            return write();
        }
        let _keep = KeepSetid::of(file, true)?;
        write()
    }

    /// Calls `fallocate(2)`, in steps if that is equivalent; `gave_up` is checked before each step.
    ///
    /// # Errors
    /// The error of the call, or EINTR.
    pub(crate) fn fallocate(
        &self,
        file: BorrowedFd<'_>,
        mode: u32,
        offset: u64,
        length: u64,
        caller: Caller,
        gave_up: impl Fn() -> bool,
    ) -> Result<(), Errno> {
        let mode = FallocateFlags::from_bits_retain(mode);
        let moves = FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE;
        let step = if mode.intersects(moves) || lacks_room(file, length) {
            length
        } else {
            MAX_FALLOCATE_STEP_BYTES
        };
        self.writing(file, !caller.keeps_setid(), caller, || {
            let (mut offset, mut left) = (offset, length);
            loop {
                if gave_up() {
                    return Err(Errno::INTR);
                }
                let now = left.min(step);
                rustix::fs::fallocate(file, mode, offset, now)?;
                left -= now;
                if left == 0 {
                    return Ok(());
                }
                offset = offset.checked_add(now).ok_or(Errno::FBIG)?;
            }
        })
    }

    /// Calls `copy_file_range(2)` between two (file, offset) pairs, for at most 16 MiB.
    ///
    /// # Errors
    /// The error of the call.
    pub(crate) fn copy(
        &self,
        from: (BorrowedFd<'_>, u64),
        to: (BorrowedFd<'_>, u64),
        length: usize,
        caller: Caller,
    ) -> Result<usize, Errno> {
        let ((source, mut start), (target, mut end)) = (from, to);
        self.writing(target, !caller.keeps_setid(), caller, || {
            let length = length.min(MAX_COPY_BYTES);
            rustix::fs::copy_file_range(source, Some(&mut start), target, Some(&mut end), length)
        })
    }

    /// Closes a duplicate of the descriptor, to collect the errors that some file systems report at close.
    ///
    /// # Errors
    /// The error of `close(2)`.
    pub(crate) fn flush(&self, handle: u64) -> Result<(), Errno> {
        let copy = rustix::io::dup(&*self.files.get(handle)?)?;
        super::super::sys::close(copy)
    }

    /// Calls `syncfs(2)` on every file system in the source.
    ///
    /// # Errors
    /// The first error; the remaining file systems are synced nevertheless.
    pub(crate) fn sync_all(&self) -> Result<(), Errno> {
        let mut fds = self.mounts.fds();
        if fds.is_empty() {
            fds.push(self.reopen(shunt_fuse::NodeId::ROOT, rustix::fs::OFlags::RDONLY)?.into());
        }
        fds.iter().map(rustix::fs::syncfs).fold(Ok(()), Result::and)
    }
}

/// Reports whether an allocation exceeds the free space. It must then fail as a whole: in steps it would first fill the
/// file system.
fn lacks_room(file: BorrowedFd<'_>, length: u64) -> bool {
    rustix::fs::fstatvfs(file).is_ok_and(|free| free.f_bavail.saturating_mul(free.f_frsize) < length)
}

/// Calls `lseek(2)` with SEEK_DATA, or with SEEK_HOLE if `hole` is set.
///
/// # Errors
/// ENXIO beyond the end of the file.
pub(crate) fn seek(file: BorrowedFd<'_>, offset: u64, hole: bool) -> Result<u64, Errno> {
    rustix::fs::seek(file, if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) })
}

/// Calls `fsync(2)` or `fdatasync(2)`.
///
/// # Errors
/// The error of the call.
pub(crate) fn sync(file: BorrowedFd<'_>, data_only: bool) -> Result<(), Errno> {
    if data_only { rustix::fs::fdatasync(file) } else { rustix::fs::fsync(file) }
}
