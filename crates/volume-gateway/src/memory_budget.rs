//! Limits on the memory of a gateway used for requests and responses, for each node and in total.
//!
//! There are three pools of their own sizes, so that a connection waiting in one holds nothing of it that earlier requests
//! need: a message is in the first pool until it is decoded, and its result in the second, or, for contents, in the third.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shunt_volume_types::id::NodeName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::protocol::Role;
use super::registry::Node;

/// Maximum number of connections of a node. A mount has some dozens while many files are read at once.
pub(super) const MAX_CONNECTIONS_OF_NODE: usize = 128;
/// Maximum number of connections of a node that is a gateway.
const MAX_CONNECTIONS_OF_GATEWAY: usize = 1024;
const KIB: usize = 1 << 10;
/// Smaller messages are limited only by the number of connections.
pub(super) const SMALL_MESSAGE_BYTES: usize = 16 * KIB;

/// The memory pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pool {
    /// Undecoded messages.
    Frames,
    /// Decoded messages, and responses.
    Work,
    /// Bytes of contents, in both directions.
    Contents,
}

impl Pool {
    const ALL: [Self; 3] = [Self::Frames, Self::Work, Self::Contents];

    /// Returns the size in KiB: in total, and for a node that is no gateway, which is at least that of the longest message.
    fn sizes(self) -> (usize, usize) {
        match self {
            Self::Frames => (128 * KIB, 64 * KIB),
            Self::Work => (256 * KIB, 128 * KIB),
            Self::Contents => (384 * KIB, 128 * KIB),
        }
    }

    /// Returns the timeout for a permit: the client does not wait for longer.
    fn permit_timeout(self) -> Duration {
        Duration::from_secs(if self == Self::Contents { 600 } else { 60 })
    }
}

type PoolSemaphores = [Arc<Semaphore>; 3];

fn semaphores(size: impl Fn(Pool) -> usize) -> PoolSemaphores {
    Pool::ALL.map(|of| Arc::new(Semaphore::new(size(of))))
}

/// The memory of a gateway.
pub(super) struct MemoryBudget {
    all: PoolSemaphores,
    nodes: Mutex<HashMap<NodeName, (usize, PoolSemaphores)>>,
}

/// A connection of a node.
pub(super) struct ConnectionSlot {
    budget: Arc<MemoryBudget>,
    node: NodeName,
    own: PoolSemaphores,
}

/// Memory taken from a pool, released on drop.
#[derive(Default)]
pub(super) struct MemoryPermit(Vec<OwnedSemaphorePermit>);

impl MemoryBudget {
    pub(super) fn new() -> Self {
        Self { all: semaphores(|of| of.sizes().0), nodes: Mutex::default() }
    }

    /// Registers a connection; `None`: the node has reached its limit.
    pub(super) fn register(self: &Arc<Self>, node: &Node) -> Option<ConnectionSlot> {
        let is_gateway = node.role == Role::Gateway;
        let limit = if is_gateway { MAX_CONNECTIONS_OF_GATEWAY } else { MAX_CONNECTIONS_OF_NODE };
        let mut nodes = self.nodes.lock();
        let size = |of: Pool| if is_gateway { of.sizes().0 } else { of.sizes().1 };
        let (count, own) = nodes.entry(node.name.clone()).or_insert_with(|| (0, semaphores(size)));
        if *count >= limit {
            return None;
        }
        *count += 1;
        Some(ConnectionSlot { budget: self.clone(), node: node.name.clone(), own: own.clone() })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut nodes = self.budget.nodes.lock();
        if let Some((count, _)) = nodes.get_mut(&self.node) {
            *count -= 1;
            if *count == 0 {
                nodes.remove(&self.node);
            }
        }
    }
}

impl ConnectionSlot {
    /// Waits for a number of bytes: first from the node's share, so that its own requests do not block other nodes.
    pub(super) async fn take(&self, of: Pool, bytes: usize) -> io::Result<MemoryPermit> {
        if bytes <= SMALL_MESSAGE_BYTES {
            return Ok(MemoryPermit::default());
        }
        let kib = bytes.div_ceil(KIB).min(of.sizes().1) as u32;
        let taken = timeout(of.permit_timeout(), async {
            let own = self.own[of as usize].clone().acquire_many_owned(kib).await;
            let all = self.budget.all[of as usize].clone().acquire_many_owned(kib).await;
            // The semaphores are never closed.
            MemoryPermit(own.into_iter().chain(all).collect())
        });
        taken.await.map_err(io::Error::from)
    }
}

impl MemoryPermit {
    /// Releases all but a number of bytes.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let kib = bytes.div_ceil(KIB);
        for held in &mut self.0 {
            drop(held.split(held.num_permits().saturating_sub(kib)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, role: Role) -> Node {
        Node { name: name.parse().unwrap(), role, since: 0 }
    }

    #[test]
    fn a_node_has_so_many_connections_and_others_have_theirs() {
        let room = Arc::new(MemoryBudget::new());
        let all = |node: &Node| {
            (0..2 * MAX_CONNECTIONS_OF_GATEWAY).map_while(|_| room.register(node)).collect::<Vec<_>>()
        };
        let held = all(&node("a", Role::Read));
        assert_eq!(held.len(), MAX_CONNECTIONS_OF_NODE);
        assert_eq!(all(&node("b", Role::Gateway)).len(), MAX_CONNECTIONS_OF_GATEWAY);
        drop(held);
        assert!(room.nodes.lock().is_empty());
        assert!(room.register(&node("a", Role::Read)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn node_at_its_limit_leaves_memory_for_others() {
        let room = Arc::new(MemoryBudget::new());
        let (one, other) = (node("a", Role::Write), node("b", Role::Write));
        let (greedy, other) = (room.register(&one).unwrap(), room.register(&other).unwrap());
        let mut all = greedy.take(Pool::Contents, 64 << 20).await.unwrap();
        let _more = greedy.take(Pool::Contents, 64 << 20).await.unwrap();
        assert!(greedy.take(Pool::Contents, 1 << 20).await.is_err(), "the wait has a limit");
        other.take(Pool::Contents, 64 << 20).await.unwrap();
        greedy.take(Pool::Contents, 100).await.unwrap();
        greedy.take(Pool::Work, 1 << 20).await.unwrap();
        all.shrink_to(32 << 20);
        greedy.take(Pool::Contents, 32 << 20).await.unwrap();
    }
}
