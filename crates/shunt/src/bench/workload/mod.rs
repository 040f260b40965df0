//! The work of one case on one side, in a limited time.

mod buffer;
mod data;
mod drop_caches;
mod metadata;

use std::time::{Duration, Instant};

pub use data::{DataFile, Mode};
pub use drop_caches::drop_caches;
pub use metadata::{Files, run as run_metadata};

use super::interrupt::Interrupt;
use super::statistics::{quantile, sorted};

/// Latencies that are kept of one step.
const MAX_LATENCIES: usize = 100_000;

/// The result of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Bytes or operations per second.
    pub rate: f64,
    /// Latencies of operations at 50, 90 and 99 per cent, in microseconds.
    pub latency_us: [f64; 3],
}

/// The time limit of a step.
#[derive(Clone, Debug)]
pub struct Slot<'a> {
    pub length: Duration,
    pub interrupt: &'a Interrupt,
}

/// Counts and times operations.
#[derive(Debug)]
pub struct Recorder<'a> {
    slot: &'a Slot<'a>,
    begun: Instant,
    last: Instant,
    amount: u64,
    latencies: Vec<f64>,
}

impl<'a> Recorder<'a> {
    pub fn new(slot: &'a Slot<'a>) -> Self {
        let now = Instant::now();
        Recorder { slot, begun: now, last: now, amount: 0, latencies: Vec::with_capacity(4096) }
    }

    /// Records the end of an operation on `amount` bytes or objects; the next one begins now. Returns false at the end of the slot.
    pub fn record(&mut self, amount: u64) -> bool {
        let now = Instant::now();
        if self.latencies.len() < MAX_LATENCIES {
            self.latencies.push((now - self.last).as_secs_f64() * 1e6);
        }
        self.last = now;
        self.amount += amount;
        now - self.begun < self.slot.length && !self.slot.interrupt.is_set()
    }

    /// The result; the time since the last operation, as of fsync, counts.
    pub fn finish(self) -> Sample {
        let seconds = self.begun.elapsed().as_secs_f64().max(1e-9);
        let sorted = sorted(&self.latencies);
        Sample {
            rate: self.amount as f64 / seconds,
            latency_us: [0.5, 0.9, 0.99].map(|at| quantile(&sorted, at)),
        }
    }
}
