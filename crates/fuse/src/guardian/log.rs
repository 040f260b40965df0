//! Log lines and the clock of the guardian's process, which has no logger of its own.

use rustix::time::{ClockId, clock_gettime};

/// Logs to standard error. It may be closed or full; that must not stop the cleanup.
pub(super) fn log(message: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "shunt guardian: {message}");
}

/// Returns the nanoseconds of CLOCK_MONOTONIC.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
