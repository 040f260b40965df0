//! A change cookie of an open file: equal before and after a read, it proves that nobody wrote in between.

use std::fs::File;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::object::Time;

/// Detects writes to a file: its size, and the times of its last modification and change, which no program can both set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::replica) struct ChangeCookie {
    pub(super) size: u64,
    pub(super) modified: (i64, u64),
    pub(super) changed: (i64, u64),
}

impl From<&rustix::fs::Stat> for ChangeCookie {
    fn from(stat: &rustix::fs::Stat) -> Self {
        Self {
            size: stat.st_size as u64,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl ChangeCookie {
    pub(super) fn of(file: &File) -> std::io::Result<Self> {
        Ok(Self::from(&rustix::fs::fstat(file)?))
    }

    pub(super) fn time(&self) -> Time {
        Time(self.modified.0.saturating_mul(1_000_000_000).saturating_add(self.modified.1 as i64))
    }

    /// Reports whether nobody wrote to the file for a time.
    pub(super) fn is_quiet(&self, long: Duration) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let changed = Duration::new(seconds.max(0) as u64, nanoseconds as u32);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // If the clock was set back, waiting would serve no purpose.
        now.checked_sub(changed).is_none_or(|since| since >= long)
    }
}
