//! The clock.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::inode::Time;

/// Now.
pub(crate) fn now() -> Time {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => Time { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() },
        Err(_) => Time::default(),
    }
}
