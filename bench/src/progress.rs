//! Progress lines on stderr, so that the table on stdout stays clean.

use std::fmt::Display;
use std::sync::OnceLock;
use std::time::Instant;

static START: OnceLock<Instant> = OnceLock::new();

/// Prints `what` with the minutes and seconds since the first call.
pub fn say(what: impl Display) {
    let seconds = START.get_or_init(Instant::now).elapsed().as_secs();
    eprintln!("[{:>3}:{:02}] {what}", seconds / 60, seconds % 60);
}
