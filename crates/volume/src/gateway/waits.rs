//! Waits for news that hold a thread: few for each node, and fewer than there are threads, so that no request waits for one.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::book::Node;
use super::wire::Role;
use crate::id::NodeName;

/// Of one node. A mount has three at most.
pub(super) const MOST_OF_NODE: usize = 8;
/// Of one that is a gateway to others.
const MOST_OF_GATEWAY: usize = 96;
/// Of all. The runtime has 512 threads for what blocks.
const MOST: usize = 256;

/// Who waits.
#[derive(Default)]
pub(super) struct Waits(Mutex<HashMap<NodeName, usize>>);

/// A wait. It ends when this is dropped.
pub(super) struct Waiting {
    waits: Arc<Waits>,
    node: NodeName,
}

impl Waits {
    /// `None`: there are enough.
    pub(super) fn begin(self: &Arc<Self>, node: &Node) -> Option<Waiting> {
        let most = if node.role == Role::Gateway { MOST_OF_GATEWAY } else { MOST_OF_NODE };
        let mut waits = self.0.lock();
        let all: usize = waits.values().sum();
        let of_node = waits.get(&node.name).copied().unwrap_or_default();
        if all >= MOST || of_node >= most {
            return None;
        }
        waits.insert(node.name.clone(), of_node + 1);
        Some(Waiting { waits: self.clone(), node: node.name.clone() })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waits = self.waits.0.lock();
        let left = waits.get_mut(&self.node).map_or(0, |of_node| {
            *of_node -= 1;
            *of_node
        });
        if left == 0 {
            waits.remove(&self.node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_node_has_all_of_the_threads_and_all_have_less() {
        let waits = Arc::new(Waits::default());
        let node = |n: usize, role| Node { name: format!("node{n}").parse().unwrap(), role, since: 0 };
        let of = |n, role| (0..2 * MOST).filter_map(|_| waits.begin(&node(n, role))).collect::<Vec<_>>();
        let mut held = of(0, Role::Admin);
        assert_eq!(held.len(), MOST_OF_NODE);
        held.extend(of(1, Role::Gateway));
        assert_eq!(held.len(), MOST_OF_NODE + MOST_OF_GATEWAY);
        held.extend((2..MOST).flat_map(|n| of(n, Role::Read)));
        assert_eq!(held.len(), MOST);
        held.clear();
        assert!(waits.0.lock().is_empty());
        assert!(waits.begin(&node(0, Role::Read)).is_some());
    }
}
