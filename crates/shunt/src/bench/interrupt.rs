//! Signals that end the benchmark: they set a flag, which is read between two operations, so that everything is removed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::{Result, failed};

/// A flag that is set by SIGINT, SIGTERM and SIGHUP.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Registers the signals.
    ///
    /// # Errors
    /// Returns the errors of sigaction(2).
    pub fn register() -> io::Result<Self> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0))?;
        }
        Ok(interrupt)
    }

    /// Reports whether a signal came.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails after a signal.
    ///
    /// # Errors
    /// A signal came.
    pub fn check(&self) -> Result<()> {
        if self.is_set() {
            Err(failed("interrupted by a signal: the benchmark has no result"))
        } else {
            Ok(())
        }
    }
}
