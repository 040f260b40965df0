//! What is done to the data of open files, reading and writing apart.

use std::os::fd::BorrowedFd;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::super::credentials::KeepSetid;
use super::super::{Caller, Lower};

/// Most bytes of one copy. The kernel copies on with the next request, between which the caller can be killed.
const COPY: usize = 16 << 20;

/// Bytes reserved, emptied or zeroed at once; between two of these the caller can be killed.
const STEP: u64 = 1 << 30;

impl Lower {
    /// Runs a write of `caller` to `file`. `kill_setid`: setuid and setgid are cleared, as the kernel does for writers without
    /// CAP_FSETID.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn writing<T>(
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

    /// `fallocate(2)`, in steps, where that is the same; `gave_up` is asked before each.
    ///
    /// # Errors
    /// Those of the call, and EINTR.
    pub fn fallocate(
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
        let step = if mode.intersects(moves) || lacks_room(file, length) { length } else { STEP };
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

    /// `copy_file_range(2)` between (file, offset) and (file, offset), of 16 MiB at most.
    ///
    /// # Errors
    /// Those of the call.
    pub fn copy(
        &self,
        from: (BorrowedFd<'_>, u64),
        to: (BorrowedFd<'_>, u64),
        length: usize,
        caller: Caller,
    ) -> Result<usize, Errno> {
        let ((source, mut start), (target, mut end)) = (from, to);
        self.writing(target, !caller.keeps_setid(), caller, || {
            let length = length.min(COPY);
            rustix::fs::copy_file_range(source, Some(&mut start), target, Some(&mut end), length)
        })
    }

    /// What closing a descriptor does on file systems that report errors there.
    ///
    /// # Errors
    /// Those of `close(2)`.
    pub fn flush(&self, handle: u64) -> Result<(), Errno> {
        let copy = rustix::io::dup(&*self.files.get(handle)?)?;
        super::super::sys::close(copy)
    }

    /// `syncfs(2)` of every file system shown.
    ///
    /// # Errors
    /// The first error; the others are synced all the same.
    pub fn sync_all(&self) -> Result<(), Errno> {
        let mut fds = self.mounts.fds();
        if fds.is_empty() {
            fds.push(self.reopen(shunt_fuse::NodeId::ROOT, rustix::fs::OFlags::RDONLY)?.into());
        }
        fds.iter().map(rustix::fs::syncfs).fold(Ok(()), Result::and)
    }
}

/// Whether a reservation may fail as a whole: in steps it would fill the file system before it does.
fn lacks_room(file: BorrowedFd<'_>, length: u64) -> bool {
    rustix::fs::fstatvfs(file).is_ok_and(|free| free.f_bavail.saturating_mul(free.f_frsize) < length)
}

/// `lseek(2)` for SEEK_DATA (`hole` unset) and SEEK_HOLE.
///
/// # Errors
/// ENXIO beyond the end.
pub fn seek(file: BorrowedFd<'_>, offset: u64, hole: bool) -> Result<u64, Errno> {
    rustix::fs::seek(file, if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) })
}

/// `fsync(2)` or `fdatasync(2)`.
///
/// # Errors
/// Those of the call.
pub fn sync(file: BorrowedFd<'_>, data_only: bool) -> Result<(), Errno> {
    if data_only { rustix::fs::fdatasync(file) } else { rustix::fs::fsync(file) }
}
