//! Penalties for nodes that made writers wait: such a node gets no lease session for a while.
//!
//! A writer waits until all nodes with a session have acknowledged its lease. A node that never does is waited for until its
//! session ends; without penalties it would begin another one at once, and any node, even a read-only one, could block all
//! writers indefinitely. So a node whose session ended while it owed an acknowledgement, or whose acknowledgements together took
//! too long, gets no session until a penalty is over. The penalty doubles each time, and is dropped after good conduct.
//! Without a session the node works as if it were offline: its reads go to the store.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use shunt_volume_types::id::NodeName;
use shunt_volume_types::object::Time;

/// An acknowledgement, or the end of a session, counts as slow if it comes later than this.
pub(super) const SLOW_ACK_DELAY: Duration = Duration::from_secs(1);

/// Limit on the total time that others wait for slow acknowledgements of a node within [`PENALTY_TTL`]: a tenth of it.
const MAX_ACK_WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The second penalty, and the longest. The first is zero: a node may have crashed and restarted.
const SECOND_PENALTY: Duration = Duration::from_secs(30);
const MAX_PENALTY: Duration = Duration::from_secs(3600);

/// Time after the last penalty or slow acknowledgement until all are dropped.
const PENALTY_TTL: Duration = Duration::from_secs(600);

/// Maximum number of nodes on record.
const MAX_REMEMBERED_NODES: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PenaltyRecord {
    node: NodeName,
    penalties: u32,
    /// Total time that others waited, in milliseconds.
    waited: u64,
    /// End of the last penalty, or the first slow acknowledgement since.
    until: Time,
}

/// The nodes with slow acknowledgements or penalties.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Penalties(Vec<PenaltyRecord>);

fn after(time: Time, span: Duration) -> Time {
    Time(time.0.saturating_add(span.as_nanos() as i64))
}

impl Penalties {
    /// Reports whether a node is refused a session now.
    pub(super) fn is_locked_out(&self, node: &NodeName, now: Time) -> bool {
        self.0.iter().any(|late| late.node == *node && late.penalties > 0 && now < late.until)
    }

    /// Records that a session ended while its node owed an acknowledgement.
    pub(super) fn ended(&mut self, node: &NodeName, now: Time) {
        let late = self.of(node, now);
        let penalty = match late.penalties.checked_sub(1) {
            None => Duration::ZERO,
            Some(before) => SECOND_PENALTY.saturating_mul(1 << before.min(16)).min(MAX_PENALTY),
        };
        late.penalties = late.penalties.saturating_add(1);
        late.waited = 0;
        late.until = after(now, penalty);
    }

    /// Records that a node acknowledged after others had waited for `waited`. Returns `true` if the total exceeds the limit:
    /// its session is to be ended.
    pub(super) fn acknowledged(&mut self, node: &NodeName, waited: Duration, now: Time) -> bool {
        let late = self.of(node, now);
        late.waited = late.waited.saturating_add(waited.as_millis() as u64);
        Duration::from_millis(late.waited) > MAX_ACK_WAIT_TIMEOUT
    }

    fn of(&mut self, node: &NodeName, now: Time) -> &mut PenaltyRecord {
        // If the clock was set back, no record may last indefinitely.
        let latest = after(now, MAX_PENALTY);
        self.0.iter_mut().for_each(|late| late.until = late.until.min(latest));
        self.0.retain(|late| now < after(late.until, PENALTY_TTL));
        let at = self.0.iter().position(|late| late.node == *node).unwrap_or_else(|| {
            if self.0.len() >= MAX_REMEMBERED_NODES {
                self.0.remove(0);
            }
            self.0.push(PenaltyRecord { node: node.clone(), penalties: 0, waited: 0, until: now });
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    fn name(name: &str) -> NodeName {
        name.parse().unwrap()
    }

    #[test]
    fn penalties_double_and_expire() {
        let mut late = Penalties::default();
        let node = name("reader");
        let mut now = 0;
        for penalty in [0, 30, 60, 120, 240] {
            late.ended(&node, at(now));
            assert_eq!(late.is_locked_out(&node, at(now + (penalty - 1).max(0))), penalty > 0, "{penalty}");
            assert!(!late.is_locked_out(&node, at(now + penalty)), "{penalty}");
            assert!(!late.is_locked_out(&name("other"), at(now)));
            now += penalty;
        }
        for _ in 0..40 {
            late.ended(&node, at(now));
        }
        assert!(!late.is_locked_out(&node, at(now + 3600)));
        now += 3600 + 601;
        late.ended(&node, at(now));
        assert!(!late.is_locked_out(&node, at(now)));
    }

    #[test]
    fn slowness_counts_while_it_lasts() {
        let mut late = Penalties::default();
        let node = name("reader");
        let slowly = Duration::from_secs(5);
        let judged: Vec<bool> = (0..13).map(|n| late.acknowledged(&node, slowly, at(10 * n))).collect();
        assert!(!judged[11] && judged[12], "{judged:?}");
        assert!(!late.is_locked_out(&node, at(120)));
        assert!(!late.acknowledged(&node, slowly, at(601)), "dropped");
    }

    #[test]
    fn few_are_remembered() {
        let mut late = Penalties::default();
        for n in 0..2 * MAX_REMEMBERED_NODES {
            late.ended(&name(&format!("n{n}")), at(0));
        }
        assert_eq!(late.0.len(), MAX_REMEMBERED_NODES);
    }
}
