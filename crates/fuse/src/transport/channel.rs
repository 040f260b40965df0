//! The reply channel of a request.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

/// A callback that runs once a reply has reached the kernel.
pub(crate) type Afterwards = Box<dyn FnOnce() + Send>;

/// A range of an open file that the transport sends, by splice instead of a copy where that is faster.
#[derive(Debug, Clone)]
pub struct FileRange {
    /// The file.
    pub file: Arc<OwnedFd>,
    /// First byte.
    pub offset: u64,
    /// Length in bytes; a shorter file makes a shorter reply.
    pub length: u32,
}

/// Sends replies, over the transport from which the request was received.
pub(crate) trait Channel: Send + Sync {
    /// Replies with an error, or with the concatenation of `parts`.
    ///
    /// # Errors
    /// ENOENT where the kernel no longer waits for this reply, ENODEV where the file system is unmounted.
    fn reply(&self, unique: u64, result: Result<(), Errno>, parts: &[&[u8]]) -> io::Result<()>;

    /// Replies with bytes of a file. A file that ends early makes a shorter reply.
    ///
    /// # Errors
    /// The errors of [`reply`](Self::reply). An error of the file itself is sent as the reply.
    fn reply_file(&self, unique: u64, range: &FileRange) -> io::Result<()>;

    /// Runs `call` once the reply, already given to this channel, has reached the kernel.
    fn after_reply(&self, unique: u64, call: Afterwards) {
        let _ = unique;
        call();
    }
}

impl FileRange {
    /// Reads the range into `room`, which has its length, and returns the number of bytes read.
    ///
    /// # Errors
    /// The error of `pread(2)` where it read nothing.
    pub(crate) fn read(&self, room: &mut [u8]) -> Result<usize, Errno> {
        read(self.file.as_fd(), self.offset, room)
    }
}

/// Reads as much of `room` as the file has from `offset` on, and returns the number of bytes read.
///
/// # Errors
/// The error of `pread(2)` where it read nothing.
pub(crate) fn read(file: BorrowedFd<'_>, offset: u64, room: &mut [u8]) -> Result<usize, Errno> {
    in_steps(room.len(), |done| rustix::io::pread(file, &mut room[done..], offset + done as u64))
}

/// Writes all bytes at `offset`, and returns how many were written: fewer only where an error followed some progress (a full
/// disk).
///
/// # Errors
/// The error of `pwrite(2)` where it wrote nothing.
pub(crate) fn write(file: BorrowedFd<'_>, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
    in_steps(bytes.len(), |done| rustix::io::pwrite(file, &bytes[done..], offset + done as u64))
}

/// Repeats a call, which is given the number of bytes done so far, until `length` bytes are done or it does none.
///
/// # Errors
/// The error of a call before any byte was done; a later one only ends the loop.
pub(crate) fn in_steps(
    length: usize,
    mut step: impl FnMut(usize) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut done = 0;
    while done < length {
        match step(done) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}
