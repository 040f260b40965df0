//! Which inodes the kernel reads and writes by itself at the moment.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use shunt_fuse::{NodeId, Opened, Serve};

#[derive(Debug, Default)]
struct Opens {
    count: usize,
    passed_through: bool,
}

/// Open inodes. One of whose opens any was passed through counts so until the last of them ends: all its opens are
/// served alike.
#[derive(Debug, Default)]
pub(super) struct OpenNodes(Mutex<HashMap<NodeId, Opens>>);

impl OpenNodes {
    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Opens>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn opened(&self, node: NodeId, opened: &Opened) {
        let mut nodes = self.lock();
        let opens = nodes.entry(node).or_default();
        opens.count += 1;
        opens.passed_through |= matches!(opened.serve, Serve::Passthrough(_));
    }

    pub(super) fn closed(&self, node: NodeId) {
        let mut nodes = self.lock();
        if let Some(opens) = nodes.get_mut(&node) {
            opens.count -= 1;
            if opens.count == 0 {
                nodes.remove(&node);
            }
        }
    }

    pub(super) fn passed_through(&self, node: NodeId) -> bool {
        self.lock().get(&node).is_some_and(|opens| opens.passed_through)
    }
}
