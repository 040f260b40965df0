//! Limits on long polls, each of which blocks a thread: a few for each node, and fewer in total than the runtime has threads, so
//! that other requests are not delayed. A client beyond the limit is answered after a short sleep instead.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shunt_volume_types::id::NodeName;

use super::protocol::Role;
use super::registry::Node;

/// Maximum number of long polls of one node. A mount uses at most three.
pub(super) const MAX_LONG_POLLS_OF_NODE: usize = 8;
/// Maximum number of long polls of all nodes that are gateways together: the rest is reserved for other nodes.
const MAX_LONG_POLLS_OF_GATEWAYS: usize = 128;
/// Maximum number of long polls of all nodes. The runtime has 512 threads for blocking calls.
const MAX_LONG_POLLS: usize = 256;

/// The running long polls.
#[derive(Default)]
pub(super) struct LongPollLimiter(Mutex<Count>);

#[derive(Default)]
struct Count {
    of_nodes: HashMap<NodeName, usize>,
    of_gateways: usize,
}

/// A running long poll; ends when dropped.
pub(super) struct LongPollSlot {
    limiter: Arc<LongPollLimiter>,
    /// `None`: of a gateway.
    node: Option<NodeName>,
}

impl LongPollLimiter {
    /// Registers a long poll; `None`: a limit is reached.
    pub(super) fn begin(self: &Arc<Self>, node: &Node) -> Option<LongPollSlot> {
        let mut count = self.0.lock();
        let is_gateway = node.role == Role::Gateway;
        let of_node = count.of_nodes.get(&node.name).copied().unwrap_or_default();
        let is_free = match is_gateway {
            true => count.of_gateways < MAX_LONG_POLLS_OF_GATEWAYS,
            false => of_node < MAX_LONG_POLLS_OF_NODE,
        };
        if !is_free || count.of_gateways + count.of_nodes.values().sum::<usize>() >= MAX_LONG_POLLS {
            return None;
        }
        match is_gateway {
            true => count.of_gateways += 1,
            false => drop(count.of_nodes.insert(node.name.clone(), of_node + 1)),
        }
        Some(LongPollSlot { limiter: self.clone(), node: (!is_gateway).then(|| node.name.clone()) })
    }
}

impl Drop for LongPollSlot {
    fn drop(&mut self) {
        let mut count = self.limiter.0.lock();
        let Some(node) = &self.node else {
            count.of_gateways -= 1;
            return;
        };
        let left = count.of_nodes.get_mut(node).map_or(0, |of_node| {
            *of_node -= 1;
            *of_node
        });
        if left == 0 {
            count.of_nodes.remove(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_node_has_all_of_the_threads_and_all_have_less() {
        let waits = Arc::new(LongPollLimiter::default());
        let node = |n: usize, role| Node { name: format!("node{n}").parse().unwrap(), role, since: 0 };
        let of =
            |n, role| (0..2 * MAX_LONG_POLLS).filter_map(|_| waits.begin(&node(n, role))).collect::<Vec<_>>();
        let mut held = of(0, Role::Admin);
        assert_eq!(held.len(), MAX_LONG_POLLS_OF_NODE);
        held.extend([1, 2].into_iter().flat_map(|n| of(n, Role::Gateway)));
        assert_eq!(held.len(), MAX_LONG_POLLS_OF_NODE + MAX_LONG_POLLS_OF_GATEWAYS);
        held.extend((3..MAX_LONG_POLLS).flat_map(|n| of(n, Role::Read)));
        assert_eq!(held.len(), MAX_LONG_POLLS);
        held.clear();
        assert!(waits.0.lock().of_nodes.is_empty() && waits.0.lock().of_gateways == 0);
        assert!(waits.begin(&node(0, Role::Read)).is_some());
    }
}
