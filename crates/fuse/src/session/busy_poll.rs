//! Busy polling: a thread polls for the next request for some microseconds before it sleeps.
//!
//! The scheduler migrates a caller that gets its reply to another CPU, because this one is busy with sending the reply. From
//! there its next request arrives within microseconds, sooner than this thread could go to sleep and be woken. Where that works
//! the thread does not sleep at all; where it does not (the caller is slow, or no CPU is left for it), polling backs off
//! exponentially.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::transport::device::Device;

/// Duration of one polling attempt.
const POLL_TIMEOUT: Duration = Duration::from_micros(20);
/// Number of consecutive failed attempts after which polling pauses.
const MAX_FAILED_POLLS: u32 = 4;
/// Maximum length of a pause, in requests.
const MAX_PAUSED_REQUESTS: u32 = 4096;

/// The results of recent attempts.
#[derive(Debug, Default)]
pub(super) struct BusyPoll {
    failed_polls: u32,
    /// Requests left in the current pause.
    pause: u32,
    last_pause: u32,
}

impl BusyPoll {
    /// Returns when there is a request, or it is time to sleep. Returns whether a request may have been pending already.
    pub(super) fn poll_or_sleep(&mut self, device: &Device) -> bool {
        if !self.is_worth_it() {
            return true;
        }
        let looks = poll_until_timeout(device);
        self.record(looks.is_some());
        looks == Some(1)
    }

    fn is_worth_it(&mut self) -> bool {
        self.pause = self.pause.saturating_sub(1);
        self.pause == 0
    }

    fn record(&mut self, came: bool) {
        if came {
            (self.failed_polls, self.last_pause) = (0, self.last_pause / 2);
            return;
        }
        self.failed_polls += 1;
        if self.failed_polls >= MAX_FAILED_POLLS {
            self.last_pause = (self.last_pause * 4).clamp(64, MAX_PAUSED_REQUESTS);
            self.pause = self.last_pause;
            // After a pause, one failed attempt starts the next pause.
            self.failed_polls = MAX_FAILED_POLLS - 1;
        }
    }
}

/// Polls until the device is readable or in error, and returns the number of polls; `None` after the timeout.
fn poll_until_timeout(device: &Device) -> Option<u32> {
    let begun = Instant::now();
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut looks = 0;
    loop {
        looks += 1;
        // Errors are left to the read that follows.
        if poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&at_once)) != Ok(0) {
            return Some(looks);
        }
        if begun.elapsed() > POLL_TIMEOUT {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries(linger: &mut BusyPoll, requests: u32, came: bool) -> u32 {
        (0..requests).filter(|_| linger.is_worth_it().then(|| linger.record(came)).is_some()).count() as u32
    }

    #[test]
    fn successful_polls_continue_and_failing_ones_become_rare() {
        let mut linger = BusyPoll::default();
        assert_eq!(tries(&mut linger, 1000, true), 1000);
        let vain = tries(&mut linger, 100_000, false);
        assert!((10..50).contains(&vain), "{vain} unsuccessful polls");
        let again = tries(&mut linger, 10_000, true);
        assert!(again > 5_000, "only {again} polls after polling succeeds again");
    }
}
