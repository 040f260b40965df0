//! A request in flight: the handle with which a test waits for its reply.

use std::time::Duration;

use crossbeam_channel::Receiver;
use shunt_fuse::Errno;

/// Timeout after which a silent server counts as hung.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// A request that was sent. Dropping it has no effect on the server.
#[derive(Debug)]
pub struct Pending {
    pub(crate) unique: u64,
    pub(crate) what: &'static str,
    pub(crate) reply: Receiver<Result<Vec<u8>, Errno>>,
}

impl Pending {
    /// Returns the request's id.
    #[must_use]
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Waits for the reply.
    ///
    /// # Errors
    /// The errno of the reply; EIO where a kernel would not accept the reply; NOTCONN once the connection is closed.
    ///
    /// # Panics
    /// The server does not reply within [`REPLY_TIMEOUT`].
    pub fn wait(self) -> Result<Vec<u8>, Errno> {
        let (unique, what) = (self.unique, self.what);
        self.wait_for(REPLY_TIMEOUT).unwrap_or_else(|| panic!("{what} (unique {unique}) got no reply"))
    }

    /// Waits for `time`; `None` if no reply arrives in that time.
    #[must_use]
    pub fn wait_for(&self, time: Duration) -> Option<Result<Vec<u8>, Errno>> {
        self.reply.recv_timeout(time).ok()
    }

    /// Returns the reply, if it has arrived.
    #[must_use]
    pub fn poll(&self) -> Option<Result<Vec<u8>, Errno>> {
        self.reply.try_recv().ok()
    }
}
