//! A progress line on a terminal, which is overwritten in place.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shortest interval between updates.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);

/// Shows progress, if standard error is a terminal.
pub struct Progress {
    /// The time of the last update.
    shown: Option<Mutex<Option<Instant>>>,
}

impl Progress {
    pub fn new() -> Self {
        Self { shown: stderr().is_terminal().then(Mutex::default) }
    }

    /// Updates the line.
    pub fn update(&self, so_far: impl Display) {
        let Some(shown) = &self.shown else { return };
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.is_none_or(|shown| shown.elapsed() >= UPDATE_INTERVAL) {
            *shown = Some(Instant::now());
            let _ = write!(stderr(), "\r{so_far}\x1b[K");
        }
    }

    /// Prints the final line, which stays.
    pub fn end(&self, total: impl Display) {
        if let Some(shown) = &self.shown {
            *shown.lock().unwrap_or_else(PoisonError::into_inner) = None;
            let _ = writeln!(stderr(), "\r{total}\x1b[K");
        }
    }
}

impl Drop for Progress {
    /// Clears the line, so that later output begins on an empty one.
    fn drop(&mut self) {
        if self.shown.as_ref().is_some_and(|shown| shown.lock().is_ok_and(|shown| shown.is_some())) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
