//! Exponential backoff with jitter between attempts to reach a store. The bound of the pause doubles after each failure, up to a
//! maximum that the caller sets, and restarts from the first after a success. Each pause is a random part of its bound, at least
//! half of it: after an outage, nodes whose requests failed at the same moment return at different ones.

use std::time::Duration;

use rand::RngExt;

const INITIAL_BACKOFF: Duration = Duration::from_millis(250);

/// A random duration from half of `longest` up to `longest`, uniformly distributed. For pauses and poll intervals that many nodes
/// begin at the same moment.
pub fn jittered(longest: Duration) -> Duration {
    jittered_by(longest, &mut rand::rng())
}

fn jittered_by(longest: Duration, random: &mut impl RngExt) -> Duration {
    longest.mul_f64(random.random_range(0.5..=1.0))
}

/// Pauses between failed attempts. The bound of each is twice that of the one before, up to the longest.
pub struct Backoff {
    initial: Duration,
    next: Duration,
    longest: Duration,
}

impl Backoff {
    /// Starts with pauses of at most 250 ms; pauses never exceed `longest`.
    pub fn new(longest: Duration) -> Self {
        Self::between(INITIAL_BACKOFF, longest)
    }

    /// Starts with pauses of at most `initial`; pauses never exceed `longest`.
    pub fn between(initial: Duration, longest: Duration) -> Self {
        Self { initial, next: initial, longest }
    }

    /// Returns the next pause: see [`jittered`].
    pub fn next_pause(&mut self) -> Duration {
        self.next_pause_by(&mut rand::rng())
    }

    fn next_pause_by(&mut self, random: &mut impl RngExt) -> Duration {
        let bound = self.next;
        self.next = (bound * 2).min(self.longest);
        jittered_by(bound, random)
    }

    /// Resets the pause after a successful attempt.
    pub fn reset(&mut self) {
        self.next = self.initial;
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::SmallRng;

    use super::*;

    /// A machine may be offline for days.
    #[test]
    fn pauses_get_no_longer_than_the_longest() {
        let longest = INITIAL_BACKOFF * 5;
        let mut pauses = Backoff::new(longest);
        let bounds = [INITIAL_BACKOFF, INITIAL_BACKOFF * 2, INITIAL_BACKOFF * 4];
        for bound in bounds.into_iter().chain(std::iter::repeat_n(longest, 1000)) {
            let pause = pauses.next_pause();
            assert!((bound / 2..=bound).contains(&pause), "{pause:?} of {bound:?}");
        }
        pauses.reset();
        assert!(pauses.next_pause() <= INITIAL_BACKOFF);
    }

    #[test]
    fn pauses_are_spread_over_the_upper_half_of_their_bound() {
        let mut random = SmallRng::seed_from_u64(31);
        let longest = Duration::from_secs(1);
        let mut tenths = [0; 10];
        for _ in 0..10_000 {
            let part = jittered_by(longest, &mut random).as_secs_f64() - 0.5;
            tenths[((part * 20.0) as usize).min(9)] += 1;
        }
        // A thousand each; the standard deviation is 30.
        assert!(tenths.iter().all(|count| (850..1150).contains(count)), "{tenths:?}");
        assert_eq!(jittered(Duration::ZERO), Duration::ZERO);
    }

    /// The store of thousands of nodes goes away for a while. All notice at the same moment, and try until it is back.
    #[test]
    fn nodes_do_not_return_in_step_after_an_outage() {
        const NODES: u64 = 5000;
        let (outage, longest, step) =
            (Duration::from_secs(300), Duration::from_secs(30), Duration::from_millis(100));
        let mut returning = vec![0_u64; longest.div_duration_f64(step) as usize + 1];
        for node in 0..NODES {
            let mut random = SmallRng::seed_from_u64(node);
            let (mut pauses, mut now) = (Backoff::new(longest), Duration::ZERO);
            while now < outage {
                now += pauses.next_pause_by(&mut random);
            }
            returning[(now - outage).div_duration_f64(step) as usize] += 1;
        }
        // Without jitter all of them return in the same 100 ms. Here, evenly over some 25 s, 20 of them would.
        let max = *returning.iter().max().unwrap();
        assert!(max <= NODES / 100, "{max} of {NODES} nodes return within {step:?}");
    }
}
