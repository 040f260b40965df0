//! The clock.

use rustix::time::{ClockId, clock_gettime};

use crate::inode::Time;

/// Now, by the clock that the kernel stamps files with, its own and those of FUSE: a few milliseconds coarse. Who makes a
/// file and writes it at once finds the time of both to be one, which the kernel need not write down a second time.
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Time { seconds: now.tv_sec, nanoseconds: now.tv_nsec as u32 }
}
