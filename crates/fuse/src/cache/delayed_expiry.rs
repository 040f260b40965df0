//! Delay queues for repeated name expiries: an expiry that may have raced with a lookup reply is sent again, up to four times.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::NotificationKind;
use crate::id::NodeId;

/// Delays before each repetition. The kernel processes a reply in the process that waits for it: at once, unless that process has
/// to wait for a CPU.
const REPEAT_DELAYS: [Duration; 4] = [
    Duration::from_millis(2),
    Duration::from_millis(20),
    Duration::from_millis(200),
    Duration::from_millis(800),
];

#[derive(Debug)]
struct ScheduledExpiry {
    due: Instant,
    parent: NodeId,
    name: Box<[u8]>,
}

/// Expiries that wait for their due time. One queue per repetition count: all entries of a queue have the same delay, so each is
/// ordered by due time.
#[derive(Debug, Default)]
pub(super) struct DelayedExpiries {
    queues: [VecDeque<ScheduledExpiry>; REPEAT_DELAYS.len()],
}

impl DelayedExpiries {
    /// Queues the next repetition of an expiry that was sent `times` times, unless that was the last.
    pub(super) fn put(&mut self, parent: NodeId, name: &[u8], times: u8, now: Instant) {
        let times = usize::from(times);
        if let (Some(queue), Some(pause)) = (self.queues.get_mut(times), REPEAT_DELAYS.get(times)) {
            queue.push_back(ScheduledExpiry { due: now + *pause, parent, name: name.into() });
        }
    }

    /// Returns the due time of the earliest entry.
    pub(super) fn due(&self) -> Option<Instant> {
        self.queues.iter().filter_map(|queue| queue.front()).map(|waiting| waiting.due).min()
    }

    /// Removes and returns an entry that is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<NotificationKind> {
        for (times, queue) in self.queues.iter_mut().enumerate() {
            if queue.front().is_some_and(|waiting| waiting.due <= now) {
                if let Some(ScheduledExpiry { parent, name, .. }) = queue.pop_front() {
                    return Some(NotificationKind::ExpireEntry { parent, name, again: times as u8 + 1 });
                }
            }
        }
        None
    }

    pub(super) fn len(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    pub(super) fn clear(&mut self) {
        self.queues.iter_mut().for_each(VecDeque::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_due_so_often_and_in_its_time() {
        let (mut later, begun) = (DelayedExpiries::default(), Instant::now());
        later.put(NodeId(1), b"name", 0, begun);
        let (mut times, mut now) = (0, begun);
        while let Some(due) = later.due() {
            assert!(due > now);
            assert_eq!(later.take(now), None, "expired too early");
            now = due;
            let Some(NotificationKind::ExpireEntry { parent, name, again }) = later.take(now) else {
                panic!()
            };
            times += 1;
            assert_eq!((parent, &*name, again), (NodeId(1), &b"name"[..], times));
            later.put(parent, &name, again, now);
        }
        assert_eq!((times, later.len()), (4, 0));
        assert!(now - begun >= Duration::from_secs(1));
    }
}
