//! The clock.

use rustix::time::{ClockId, clock_gettime};

/// A point in time: seconds since 1970, from -2^31 to 2^34 - 2^31, and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds below one second.
    pub nanoseconds: u32,
}

impl Time {
    /// `extra` has two more bits of the seconds below, nanoseconds above.
    pub(crate) fn decode(seconds: u32, extra: Option<u32>) -> Self {
        let extra = extra.unwrap_or(0);
        let seconds = i64::from(seconds.cast_signed()) + (i64::from(extra & 3) << 32);
        // More than a second of nanoseconds is damage without consequence: shown as none.
        let nanoseconds = Some(extra >> 2).filter(|&nanoseconds| nanoseconds < 1_000_000_000).unwrap_or(0);
        Self { seconds, nanoseconds }
    }
}

/// Now, by the clock that the kernel stamps files with, its own and those of FUSE: a few milliseconds coarse. Who makes a
/// file and writes it at once finds the time of both to be one, which the kernel need not write down a second time.
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Time { seconds: now.tv_sec, nanoseconds: now.tv_nsec as u32 }
}
