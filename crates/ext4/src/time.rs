//! Current time for inode timestamps.

use rustix::time::{ClockId, clock_gettime};

/// A timestamp: seconds since 1970, from -2^31 to 2^34 - 2^31, and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

impl Time {
    /// Decodes a timestamp. `extra` has two more bits of the seconds in its low bits, and the nanoseconds above.
    pub(crate) fn decode(seconds: u32, extra: Option<u32>) -> Self {
        let extra = extra.unwrap_or(0);
        let seconds = i64::from(seconds as i32) + (i64::from(extra & 3) << 32);
        // A nanosecond value of a second or more is harmless damage: show it as 0.
        let nanoseconds = Some(extra >> 2).filter(|&nanoseconds| nanoseconds < 1_000_000_000).unwrap_or(0);
        Self { seconds, nanoseconds }
    }
}

/// Returns the current time of the coarse clock (a few milliseconds) that the kernel uses for its own timestamps and those of
/// FUSE. A file that is created and written at once then has one timestamp, which the kernel need not write back again.
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Time { seconds: now.tv_sec, nanoseconds: now.tv_nsec as u32 }
}
