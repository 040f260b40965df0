//! Cycle detection on paths up a tree (Brent's algorithm), in constant memory regardless of depth. A correct tree has no cycles,
//! but the log of a store is not trusted, and local and remote moves may combine to one.

use crate::merge::{Ino, PlanError};

/// Returns the error for a path that is a cycle.
pub(super) fn cycle_error() -> PlanError {
    PlanError::Log("a directory is its own ancestor".into())
}

/// Detects cycles: remembers one element of the path, and replaces it after twice as many steps each time. Once it is in the
/// cycle, the path reaches it again.
#[derive(Default)]
pub(crate) struct CycleDetector {
    mark: Option<Ino>,
    steps: u64,
    next: u64,
}

impl CycleDetector {
    /// Takes the next element of the path; returns `true` if a cycle is found.
    pub(crate) fn closes_cycle(&mut self, at: Ino) -> bool {
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
