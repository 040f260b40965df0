//! Files that somebody may write through a mapping.
//!
//! Under passthrough a shared mapping is the lower file's: what is stored there moves size and times of the lower
//! inode, and neither kernel nor daemon hears of it, not even at close, which comes while the mapping lives on. A
//! shared writable mapping takes a file opened for reading and writing, so the attributes of such a file are never
//! believed for long again, however it is cached, until the kernel forgets it.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shunt_fuse::takeover::Takeover;
use shunt_fuse::{Expiry, Handle, NodeId};

use crate::takeover::device;

/// How long such attributes are believed.
const MMAP_ATTR_TTL: Expiry = Expiry::after(Duration::from_secs(1));

/// Nodes that were opened for reading and writing and passed through.
#[derive(Debug, Default)]
pub(crate) struct Mappable {
    nodes: Mutex<HashSet<NodeId>>,
    any: AtomicBool,
    /// Of an earlier daemon's nodes it is not known which.
    all: AtomicBool,
    /// Where they are noted for the next daemon, which cannot see who has a mapping.
    session: OnceLock<Handle>,
}

impl Mappable {
    /// Goes on where other daemons ended.
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

    /// Takes note of an open; tells whether it is the first of its node.
    pub(crate) fn note(&self, node: NodeId) -> bool {
        let mut nodes = self.nodes.lock();
        self.any.store(true, Ordering::Release);
        let first = nodes.insert(node);
        if first && let Some(takeover) = self.takeover() {
            takeover.mark(node.0);
        }
        first
    }

    /// Whether a mapping may write the node past the kernel's caches.
    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.all.load(Ordering::Acquire)
            || self.any.load(Ordering::Acquire) && self.nodes.lock().contains(&node)
    }

    /// Shortens an expiry where a mapping may make it untrue.
    pub(crate) fn limit(&self, node: NodeId, expiry: Expiry) -> Expiry {
        if expiry > MMAP_ATTR_TTL && self.contains(node) { MMAP_ATTR_TTL } else { expiry }
    }

    /// The kernel forgot the node, if it holds it no more.
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
