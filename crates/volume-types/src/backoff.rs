//! Exponential backoff between attempts to reach a store. The pause doubles after each failure, up to a maximum that the caller
//! sets, and restarts from 250 ms after a success.

use std::time::Duration;

const INITIAL_BACKOFF: Duration = Duration::from_millis(250);

/// Pauses between failed attempts, each twice as long as the one before, up to the longest.
pub struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// Starts with the shortest pause; pauses never exceed `longest`.
    pub fn new(longest: Duration) -> Self {
        Self { next: INITIAL_BACKOFF, longest }
    }

    /// Returns the next pause: the first is 250 ms, each later one twice the last.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }

    /// Resets the pause after a successful attempt.
    pub fn reset(&mut self) {
        self.next = INITIAL_BACKOFF;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine may be offline for days.
    #[test]
    fn pauses_get_no_longer_than_the_longest() {
        let longest = INITIAL_BACKOFF * 5;
        let mut pauses = Backoff::new(longest);
        let all: Vec<Duration> = (0..1000).map(|_| pauses.next_pause()).collect();
        assert_eq!(all[..4], [INITIAL_BACKOFF, INITIAL_BACKOFF * 2, INITIAL_BACKOFF * 4, longest]);
        assert!(all[4..].iter().all(|pause| *pause == longest));
        pauses.reset();
        assert_eq!(pauses.next_pause(), INITIAL_BACKOFF);
    }
}
