//! The way back to the kernel for one request's reply.

use std::io;

use rustix::io::Errno;

use crate::api::FileRange;

/// Something to be done once a reply is with the kernel.
pub(crate) type Afterwards = Box<dyn FnOnce() + Send>;

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
