//! Repeats invalidations after a delay, for replies that were in flight when the first one was sent.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::lower::watch::Change;

/// Delays of the repeats: one that covers replies under normal load, and one for an overloaded machine.
pub(super) const REPEATS: [Duration; 2] = [Duration::from_millis(30), Duration::from_secs(1)];

/// Limit on changes queued for a repeat; beyond it they collapse into `Change::Everything`.
const MAX_QUEUED_CHANGES: usize = 1 << 16;

/// Queue of the changes that wait for their repeat after one of the delays.
#[derive(Debug, Default)]
struct Stage {
    queue: VecDeque<(Instant, Change)>,
    /// Due time of the repeat of each change. A change that recurs is invalidated at once each time, so only its last
    /// occurrence needs the repeat.
    due: HashMap<Change, Instant>,
}

/// Invalidations to be repeated, one stage per delay.
#[derive(Debug, Default)]
pub(super) struct RepeatedInvalidations([Stage; REPEATS.len()]);

impl RepeatedInvalidations {
    /// Schedules the repeats of an invalidation that is sent now.
    pub(super) fn schedule(&mut self, change: &Change, now: Instant) {
        for (stage, pause) in self.0.iter_mut().zip(REPEATS) {
            stage.add(change, now + pause);
        }
    }

    /// Returns when the next repeat is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.iter().filter_map(|stage| Some(stage.queue.front()?.0)).min()
    }

    /// Removes and returns a repeat that is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<Change> {
        self.0.iter_mut().find_map(|stage| stage.take(now))
    }
}

impl Stage {
    fn add(&mut self, change: &Change, due: Instant) {
        if self.queue.len() >= MAX_QUEUED_CHANGES || *change == Change::Everything {
            self.queue.clear();
            self.due.clear();
            self.queue.push_back((due, Change::Everything));
            self.due.insert(Change::Everything, due);
            return;
        }
        if self.due.insert(change.clone(), due) != Some(due) {
            self.queue.push_back((due, change.clone()));
        }
    }

    fn take(&mut self, now: Instant) -> Option<Change> {
        while self.queue.front()?.0 <= now {
            let (due, change) = self.queue.pop_front()?;
            if self.due.get(&change) == Some(&due) {
                self.due.remove(&change);
                return Some(change);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_fuse::NodeId;

    fn due(echo: &mut RepeatedInvalidations, now: Instant) -> Vec<Change> {
        std::iter::from_fn(|| echo.take(now)).collect()
    }

    #[test]
    fn each_comes_again_after_its_last_time() {
        let (mut echo, start) = (RepeatedInvalidations::default(), Instant::now());
        let change = Change::Inode(NodeId(7), false);
        let at = |millis| start + Duration::from_millis(millis);
        echo.schedule(&change, at(0));
        echo.schedule(&change, at(10));
        assert!(due(&mut echo, at(35)).is_empty());
        assert_eq!(due(&mut echo, at(45)), std::slice::from_ref(&change));
        assert!(due(&mut echo, at(1005)).is_empty());
        assert_eq!(due(&mut echo, at(1015)), [change]);
        assert_eq!(echo.next(), None);
    }

    #[test]
    fn too_many_become_everything() {
        let (mut echo, start) = (RepeatedInvalidations::default(), Instant::now());
        (0..=MAX_QUEUED_CHANGES as u64)
            .for_each(|node| echo.schedule(&Change::Inode(NodeId(node), true), start));
        assert_eq!(due(&mut echo, start + REPEATS[0]), [Change::Everything]);
        assert_eq!(due(&mut echo, start + REPEATS[1]), [Change::Everything]);
    }
}
