//! Reads the mounts on a thread of its own, so that daemons that do not reply never delay the display.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::processes::Processes;
use super::reading::{Reading, read};
use super::view::View;
use crate::error::Result;

/// Longest time until the second reading, which is the first with rates.
const FIRST_INTERVAL: Duration = Duration::from_millis(500);

/// Takes readings, and compares each with the one before.
#[derive(Debug, Default)]
pub struct Sampler {
    last: Option<Reading>,
    processes: Processes,
}

/// A request to the thread that takes readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Take readings at this interval.
    SetInterval(Duration),
    /// Take a reading now.
    ReadNow,
}

impl Sampler {
    /// Takes a reading. Takes two seconds at most, or a little more on a busy machine.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn sample(&mut self) -> Result<View> {
        let now = read()?;
        let view = View::between(self.last.as_ref(), &now, &mut self.processes);
        self.last = Some(now);
        Ok(view)
    }

    /// Takes readings until the other side of the channel is closed, or `publish` returns false.
    pub fn run(
        mut self,
        mut interval: Duration,
        commands: &Receiver<Command>,
        publish: impl Fn(Result<View>) -> bool,
    ) {
        let mut next = Instant::now();
        loop {
            let first = self.last.is_none();
            if !publish(self.sample()) {
                return;
            }
            let pause = if first { interval.min(FIRST_INTERVAL) } else { interval };
            // After a slow reading, half an interval passes before the next one.
            next = (next + pause).max(Instant::now() + pause / 2);
            loop {
                match commands.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Ok(Command::SetInterval(new)) => {
                        interval = new;
                        next = next.min(Instant::now() + interval);
                    }
                    // Requests that are already queued are served by one reading.
                    Ok(Command::ReadNow) => next = Instant::now(),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn one_reading_serves_all_queued_requests() {
        let (sender, commands) = mpsc::channel();
        for _ in 0..5 {
            sender.send(Command::ReadNow).unwrap();
        }
        let (sender, readings) = (Cell::new(Some(sender)), Cell::new(0));
        Sampler::default().run(Duration::from_secs(3600), &commands, |view| {
            readings.set(readings.get() + 1);
            // The closed channel ends the loop.
            if readings.get() == 2 {
                drop(sender.take());
            }
            view.is_ok()
        });
        assert_eq!(readings.get(), 2);
    }
}
