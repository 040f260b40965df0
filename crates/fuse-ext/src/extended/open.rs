//! Open inodes, as far as the daemon sees their opens.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use shunt_fuse::{NodeId, Opened, Serve};

/// `O_ACCMODE` and `O_TRUNC`: an open without any of these bits changes nothing.
const WRITE_FLAGS: u32 = 0o3 | 0o1000;

/// Reports whether an open with these flags, or a write through it, can change the file.
pub(super) fn writes(flags: u32) -> bool {
    flags & WRITE_FLAGS != 0
}

#[derive(Debug, Default)]
struct Opens {
    count: usize,
    passed_through: bool,
    writes: bool,
}

/// The open inodes. An inode counts as passed through, or as open for writing, until its last open ends, if any of its opens was:
/// all its opens have one mode, and a mapping may outlive its open.
#[derive(Debug, Default)]
pub(super) struct OpenNodes(Mutex<HashMap<NodeId, Opens>>);

impl OpenNodes {
    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Opens>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn opened(&self, node: NodeId, opened: &Opened, flags: u32) {
        let mut nodes = self.lock();
        let opens = nodes.entry(node).or_default();
        opens.count += 1;
        opens.passed_through |= matches!(opened.serve, Serve::Passthrough(_));
        opens.writes |= writes(flags);
    }

    /// Counts an open that an earlier daemon answered, and assumes that it was passed through.
    pub(super) fn opened_before(&self, node: NodeId, flags: u32) {
        let mut nodes = self.lock();
        let opens = nodes.entry(node).or_default();
        opens.count += 1;
        opens.passed_through = true;
        opens.writes |= writes(flags);
    }

    /// Counts a release; returns whether any open of the inode could write.
    pub(super) fn closed(&self, node: NodeId) -> bool {
        let mut nodes = self.lock();
        let Some(opens) = nodes.get_mut(&node) else { return true };
        let writes = opens.writes;
        opens.count -= 1;
        if opens.count == 0 {
            nodes.remove(&node);
        }
        writes
    }

    /// Reports whether the kernel may read the file bypassing the daemon.
    pub(super) fn passed_through(&self, node: NodeId) -> bool {
        self.lock().get(&node).is_some_and(|opens| opens.passed_through)
    }

    /// Reports whether the kernel may write the file bypassing the daemon.
    pub(super) fn written_past(&self, node: NodeId) -> bool {
        self.lock().get(&node).is_some_and(|opens| opens.passed_through && opens.writes)
    }
}

#[cfg(test)]
mod tests {
    use shunt_fuse::FileHandle;

    use super::*;

    #[test]
    fn an_inode_counts_as_written_until_its_last_open_ends() {
        let (nodes, node) = (OpenNodes::default(), NodeId(7));
        let opened = Opened::cached(FileHandle(0));
        nodes.opened(node, &opened, 0o2);
        nodes.opened(node, &opened, 0);
        assert!(nodes.closed(node));
        assert!(nodes.closed(node));
        nodes.opened(node, &opened, 0);
        assert!(!nodes.written_past(node));
        assert!(!nodes.closed(node));
    }
}
