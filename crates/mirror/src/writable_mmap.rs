//! Tracking of files that may be written through a shared mapping.
//!
//! Under passthrough a shared mapping maps the lower file: stores to it change size and times of the lower inode
//! without any notice to the FUSE side of the kernel or the daemon, not even at close, which precedes the end of the
//! mapping. A shared writable mapping needs a file opened for reading and writing. The attributes of such a file are
//! therefore cached only briefly in every cache mode, until the kernel forgets the inode.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shunt_fuse::takeover::Takeover;
use shunt_fuse::{Expiry, Handle, NodeId};

use crate::takeover_marks::device;

/// Attribute cache lifetime of files that may be mapped writable.
const MMAP_ATTR_TTL: Expiry = Expiry::after(Duration::from_secs(1));

/// The nodes that were opened for reading and writing with passthrough.
#[derive(Debug, Default)]
pub(crate) struct WritableMappings {
    nodes: Mutex<HashSet<NodeId>>,
    any: AtomicBool,
    /// An earlier daemon could not record all its nodes, so any node may be mapped.
    all: AtomicBool,
    /// The session that records the nodes for the next daemon, which cannot see existing mappings.
    session: OnceLock<Handle>,
}

impl WritableMappings {
    /// Restores the nodes that earlier daemons recorded.
    pub(crate) fn start(&self, session: &Handle) {
        let Some(takeover) = session.takeover() else { return };
        let nodes = takeover.marks().into_iter().filter(|mark| device(*mark).is_none()).map(NodeId);
        self.nodes.lock().extend(nodes);
        self.all.store(!takeover.has_all_marks(), Ordering::Release);
        self.any.store(!self.nodes.lock().is_empty(), Ordering::Release);
        let _ = self.session.set(session.clone());
    }

    fn takeover(&self) -> Option<&Takeover> {
        self.session.get()?.takeover()
    }

    /// Records an open; returns whether it is the first of its node.
    pub(crate) fn note(&self, node: NodeId) -> bool {
        let mut nodes = self.nodes.lock();
        self.any.store(true, Ordering::Release);
        let first = nodes.insert(node);
        if first && let Some(takeover) = self.takeover() {
            takeover.mark(node.0);
        }
        first
    }

    /// Reports whether a mapping may write the node behind the kernel's attribute cache.
    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.all.load(Ordering::Acquire)
            || self.any.load(Ordering::Acquire) && self.nodes.lock().contains(&node)
    }

    /// Shortens an expiry if a mapping may change the attributes.
    pub(crate) fn limit(&self, node: NodeId, expiry: Expiry) -> Expiry {
        if expiry > MMAP_ATTR_TTL && self.contains(node) { MMAP_ATTR_TTL } else { expiry }
    }

    /// Removes a node that the kernel forgot, unless the kernel holds it again.
    pub(crate) fn forget(&self, node: NodeId, held: impl FnOnce() -> bool) {
        if self.any.load(Ordering::Acquire) {
            let mut nodes = self.nodes.lock();
            if nodes.contains(&node) && !held() {
                nodes.remove(&node);
                if let Some(takeover) = self.takeover() {
                    takeover.unmark(node.0);
                }
                self.any.store(!nodes.is_empty(), Ordering::Release);
            }
        }
    }
}
