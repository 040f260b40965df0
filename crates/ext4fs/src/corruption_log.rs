//! Maps engine errors to errnos, and logs corruption and I/O errors. At most [`MAX_REPORTS`] lines are logged, so that a
//! corrupt image cannot fill the log.

use std::sync::atomic::{AtomicU32, Ordering};

use shunt_ext4::Error;
use shunt_fuse::Errno;

/// Maximum number of log lines about one image.
const MAX_REPORTS: u32 = 100;

/// Counter of logged errors.
#[derive(Debug, Default)]
pub(crate) struct CorruptionLog(AtomicU32);

impl CorruptionLog {
    /// Returns the errno for the caller, and logs the error if the image is at fault.
    pub(crate) fn errno(&self, error: &Error) -> Errno {
        if matches!(error, Error::Corrupt(_) | Error::Io(_)) {
            // The counter stays at its maximum.
            match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reports| {
                (reports <= MAX_REPORTS).then_some(reports + 1)
            }) {
                Ok(MAX_REPORTS) => {
                    tracing::warn!(
                        "{MAX_REPORTS} errors of this image were logged; further ones are not: check the disk and run e2fsck -f"
                    )
                }
                Ok(_) => tracing::warn!("{error}"),
                Err(_) => {}
            }
        }
        error.errno()
    }
}
