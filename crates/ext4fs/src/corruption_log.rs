//! Maps engine errors to errnos, and logs corruption and I/O errors. At most [`MAX_REPORTS`] lines are logged, so that a
//! corrupt image cannot fill the log.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use shunt_ext4::Error;
use shunt_fuse::Errno;

/// Maximum number of log lines about one image.
const MAX_REPORTS: u32 = 100;

/// Errors of an image since the mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DamageCounts {
    /// Operations that failed because metadata is corrupt.
    pub corruptions: u64,
    /// Operations that failed because the device could not be read or written.
    pub io_errors: u64,
}

/// Counters of errors, and of those that were logged.
#[derive(Debug, Default)]
pub(crate) struct CorruptionLog {
    logged: AtomicU32,
    corruptions: AtomicU64,
    io_errors: AtomicU64,
}

impl CorruptionLog {
    /// Returns the errno for the caller, and logs the error if the image is at fault.
    pub(crate) fn errno(&self, error: &Error) -> Errno {
        if matches!(error, Error::Corrupt(_) | Error::Io(_)) {
            // The counter stays at its maximum.
            let counter = match error {
                Error::Corrupt(_) => &self.corruptions,
                _ => &self.io_errors,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            match self.logged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reports| {
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

    /// Returns the errors so far.
    pub(crate) fn counts(&self) -> DamageCounts {
        DamageCounts {
            corruptions: self.corruptions.load(Ordering::Relaxed),
            io_errors: self.io_errors.load(Ordering::Relaxed),
        }
    }
}
