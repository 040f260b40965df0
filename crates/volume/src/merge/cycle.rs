//! Ways up a tree, which are as long as it is deep: however deep that is.

use crate::merge::{Ino, PlanError};

/// Of a way that goes in a circle.
pub(super) fn cycle_error() -> PlanError {
    PlanError::Log("a directory is below itself".into())
}

/// Whether a way goes in a circle. One place of it is remembered, and another one after twice as many steps each time:
/// once that is in the circle, the way comes by it again.
#[derive(Default)]
pub(crate) struct CycleDetector {
    mark: Option<Ino>,
    steps: u64,
    next: u64,
}

impl CycleDetector {
    /// To be told of each place in its order.
    pub fn closes_cycle(&mut self, at: Ino) -> bool {
        if self.mark == Some(at) {
            return true;
        }
        self.steps += 1;
        if self.steps > self.next {
            (self.mark, self.next) = (Some(at), self.steps * 2);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found_wherever_it_begins_and_a_long_way_is_none() {
        for (begins, length) in [(0, 1), (0, 2), (1, 1), (5, 3), (1000, 7), (3, 1000)] {
            let mut way = CycleDetector::default();
            let places = (0..begins).chain((begins..begins + length).cycle());
            let steps = places.take_while(|at| !way.closes_cycle(*at)).count() as u64;
            assert!(steps <= 4 * (begins + length + 1), "{begins} {length}: {steps}");
        }
        let mut way = CycleDetector::default();
        assert!(!(0..3_000_000).any(|at| way.closes_cycle(at)));
    }
}
