//! What is wrong with an image is told in the log, but an image cannot fill the log.

use std::sync::atomic::{AtomicU32, Ordering};

use shunt_ext4::Error;
use shunt_fuse::Errno;

/// Lines about one image.
const MAX_REPORTS: u32 = 100;

/// Counts what was told.
#[derive(Debug, Default)]
pub(crate) struct Damage(AtomicU32);

impl Damage {
    /// The errno that the caller gets, and a line in the log where the image is at fault.
    pub(crate) fn errno(&self, error: &Error) -> Errno {
        if matches!(error, Error::Corrupt(_) | Error::Io(_)) {
            // Once above, it stays there.
            match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |told| {
                (told <= MAX_REPORTS).then_some(told + 1)
            }) {
                Ok(MAX_REPORTS) => {
                    tracing::warn!("{MAX_REPORTS} errors of this image were told, more are not")
                }
                Ok(_) => tracing::warn!("{error}"),
                Err(_) => {}
            }
        }
        error.errno()
    }
}
