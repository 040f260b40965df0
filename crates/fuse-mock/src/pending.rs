//! A request under way.

use std::time::Duration;

use crossbeam_channel::Receiver;
use shunt_fuse::Errno;

/// A server that is silent for this long hangs.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A request that was sent. Dropping it changes nothing for the server.
#[derive(Debug)]
pub struct Pending {
    pub(crate) unique: u64,
    pub(crate) what: &'static str,
    pub(crate) reply: Receiver<Result<Vec<u8>, Errno>>,
}

impl Pending {
    /// The request's id.
    #[must_use]
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// The answer's errno; EIO where the kernel would not accept the answer; NOTCONN once the connection is gone.
    ///
    /// # Panics
    /// After [`TIMEOUT`]: the server hangs.
    pub fn wait(self) -> Result<Vec<u8>, Errno> {
        let (unique, what) = (self.unique, self.what);
        self.wait_for(TIMEOUT).unwrap_or_else(|| panic!("{what} (unique {unique}) is not answered"))
    }

    /// Waits this long; `None` where there is no answer by then.
    #[must_use]
    pub fn wait_for(&self, time: Duration) -> Option<Result<Vec<u8>, Errno>> {
        self.reply.recv_timeout(time).ok()
    }

    /// The answer, if it is there.
    #[must_use]
    pub fn poll(&self) -> Option<Result<Vec<u8>, Errno>> {
        self.reply.try_recv().ok()
    }
}
