//! How far long work is, on a terminal: one line, which is written over.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often it is shown.
const TICK: Duration = Duration::from_millis(200);

/// Shows progress; nothing where standard error is no terminal.
pub struct Progress {
    /// When it was shown last.
    shown: Option<Mutex<Option<Instant>>>,
}

impl Progress {
    pub fn new() -> Self {
        Self { shown: stderr().is_terminal().then(Mutex::default) }
    }

    /// It is so far now.
    pub fn show(&self, so_far: impl Display) {
        let Some(shown) = &self.shown else { return };
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.is_none_or(|shown| shown.elapsed() >= TICK) {
            *shown = Some(Instant::now());
            let _ = write!(stderr(), "\r{so_far}\x1b[K");
        }
    }

    /// It is done. The line stays.
    pub fn end(&self, total: impl Display) {
        if let Some(shown) = &self.shown {
            *shown.lock().unwrap_or_else(PoisonError::into_inner) = None;
            let _ = writeln!(stderr(), "\r{total}\x1b[K");
        }
    }
}

impl Drop for Progress {
    /// What is said next begins on an empty line.
    fn drop(&mut self) {
        if self.shown.as_ref().is_some_and(|shown| shown.lock().is_ok_and(|shown| shown.is_some())) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
