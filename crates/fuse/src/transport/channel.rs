//! The way back to the kernel for one request's reply.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

/// Something to be done once a reply is with the kernel.
pub(crate) type Afterwards = Box<dyn FnOnce() + Send>;

/// A stretch of an open file that the transport sends, without a copy where that pays.
#[derive(Debug, Clone)]
pub struct FileRange {
    /// The file.
    pub file: Arc<OwnedFd>,
    /// First byte.
    pub offset: u64,
    /// Bytes; a shorter file makes a shorter reply.
    pub length: u32,
}

/// Sends replies. A reply goes back the way its request came.
pub(crate) trait Channel: Send + Sync {
    /// Answers with an error, or with `parts` one after the other.
    ///
    /// # Errors
    /// ENOENT where the kernel no longer waits for this reply, ENODEV where the mount is gone.
    fn reply(&self, unique: u64, result: Result<(), Errno>, parts: &[&[u8]]) -> io::Result<()>;

    /// Answers with bytes of a file. A file that ends early makes a shorter reply.
    ///
    /// # Errors
    /// As [`reply`](Self::reply). An error of the file itself is sent as the reply.
    fn reply_file(&self, unique: u64, range: &FileRange) -> io::Result<()>;

    /// Does something once the reply, already given to this channel, is with the kernel.
    fn after_reply(&self, unique: u64, call: Afterwards) {
        let _ = unique;
        call();
    }
}

impl FileRange {
    /// Reads it into `room`, which has its length. Tells how much there was.
    ///
    /// # Errors
    /// Those of `pread(2)` where nothing was read.
    pub(crate) fn read(&self, room: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < room.len() {
            match rustix::io::pread(&self.file, &mut room[done..], self.offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}
