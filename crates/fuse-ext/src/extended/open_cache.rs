//! Files that the program may open: keeps their backing files registered, and counts the program's opens.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use shunt_fuse::takeover::ReleasedBacking;
use shunt_fuse::{Backing, Handle, NodeId};

use crate::Version;
use crate::builtin::{OpenCounts, Tables};

/// Maximum number of cached backing files. Each holds an inode of the lower file system: the space of a file removed there is
/// freed only when it is released here.
const MAX_CACHED_OPENS: usize = 4096;

/// All current opens of an inode must use one backing file, so a backing file that the program used is kept until its opens have
/// ended.
#[derive(Debug, Default)]
pub(super) struct OpenCache(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    tables: Option<Arc<Tables>>,
    /// The counts of all programs of this mount, also while none is attached.
    counts: Option<Arc<OpenCounts>>,
    /// The session, whose takeover state has the backing files too.
    session: Option<Handle>,
    cached: HashMap<NodeId, Backing>,
    /// Oldest first; those of an earlier daemon in any order. May contain nodes that are no longer held.
    order: VecDeque<NodeId>,
}

impl State {
    /// Reports whether the program has the node open. Nodes that share its counter are included, so this errs on the safe side.
    fn is_open(&self, node: NodeId) -> bool {
        self.counts.as_ref().is_none_or(|counts| counts.get(node) != 0)
    }

    /// Stops the program from opening the node, and returns its backing file if it is not open. Drop that without the lock.
    fn evict(&mut self, node: NodeId) -> Option<ReleasedBacking> {
        if !self.cached.contains_key(&node) {
            return None;
        }
        // The program increments the counter before it checks the version: after this, either it sees the change or its open is
        // counted here.
        if let Some(tables) = &self.tables {
            tables.opening_changed(node);
        }
        if self.is_open(node) {
            return None;
        }
        // The record goes under the same lock as the entry: the next insert of this node makes another one.
        self.cached.remove(&node).map(|backing| self.released(node, backing))
    }

    fn released(&self, node: NodeId, backing: Backing) -> ReleasedBacking {
        match self.session.as_ref().and_then(Handle::takeover) {
            Some(takeover) => takeover.release_backing(node, backing),
            None => backing.into(),
        }
    }

    fn shrink(&mut self) -> Vec<ReleasedBacking> {
        let mut evicted = Vec::new();
        for _ in 0..self.order.len() {
            if self.cached.len() <= MAX_CACHED_OPENS && self.order.len() <= 2 * MAX_CACHED_OPENS {
                break;
            }
            let Some(oldest) = self.order.pop_front() else { break };
            evicted.extend(self.evict(oldest));
            if self.cached.contains_key(&oldest) {
                self.order.push_back(oldest);
            }
        }
        evicted
    }
}

impl OpenCache {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Called at the start of a session, after which backing files are kept for the next daemon; adopts those of an earlier one.
    pub(super) fn start(&self, session: &Handle) {
        let mut state = self.lock();
        state.session = Some(session.clone());
        let mut superfluous = Vec::new();
        for (node, backing) in session.take_kept_backings() {
            match state.cached.contains_key(&node) {
                true => superfluous.push(state.released(node, backing)),
                false => {
                    state.cached.insert(node, backing);
                    state.order.push_back(node);
                }
            }
        }
        drop(state);
        drop(superfluous);
    }

    /// Called at the end of a session.
    pub(super) fn end(&self) {
        self.lock().session = None;
    }

    /// Switches to the tables of a new program or, with `None`, to no program.
    pub(super) fn attach(&self, tables: Option<Arc<Tables>>) {
        let mut state = self.lock();
        if let Some(tables) = &tables {
            state.counts = Some(tables.open_counts());
        }
        state.tables = tables;
    }

    /// Sets the counts of the programs of an earlier daemon. Call it only when none of them is attached any more: without the
    /// counts nothing is evicted, and the program of an earlier daemon may still open files from tables that this one does not
    /// have.
    #[cfg(feature = "bpf")]
    pub(super) fn set_counts(&self, counts: OpenCounts) {
        self.lock().counts = Some(Arc::new(counts));
    }

    /// Lets the program open `node` from now on, if nothing changed since.
    pub(super) fn insert(&self, node: NodeId, since: Version, backing: &Backing) {
        let mut state = self.lock();
        let Some(tables) = state.tables.clone() else { return };
        if !state.cached.contains_key(&node) {
            let takeover = state.session.as_ref().and_then(Handle::takeover);
            if takeover.is_some_and(|takeover| !takeover.keep_backing(node, backing)) {
                return;
            }
            state.cached.insert(node, backing.clone());
            state.order.push_back(node);
        }
        tables.store_open(node, since, backing);
        let evicted = state.shrink();
        drop(state);
        drop(evicted);
    }

    /// Returns the backing file that an open of `node` must use, regardless of the one that the file system selects.
    pub(super) fn backing(&self, node: NodeId) -> Option<Backing> {
        self.lock().cached.get(&node).cloned()
    }

    /// Reports whether the program may open the node, so that reads bypass the daemon.
    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.lock().cached.contains_key(&node)
    }

    /// Stops the program from opening `node`, and releases its backing file if it is not open.
    pub(super) fn evict(&self, node: NodeId) {
        let evicted = self.lock().evict(node);
        drop(evicted);
    }

    /// Stops the program from opening any inode, and releases the backing files that are not open.
    pub(super) fn evict_all(&self) {
        let mut state = self.lock();
        let nodes: Vec<NodeId> = state.cached.keys().copied().collect();
        let evicted: Vec<_> = nodes.into_iter().filter_map(|node| state.evict(node)).collect();
        drop(state);
        drop(evicted);
    }

    /// Counts a release that reached the daemon because no program was attached, or because the kernel sent it past the program.
    /// After a takeover, a release that was read before and is resent is not counted again, nor for the first time if the earlier
    /// daemon had not come to it: then the backing file is kept until the end of the mount.
    pub(super) fn closed(&self, node: NodeId) {
        if let Some(counts) = &self.lock().counts {
            counts.decrement(node);
        }
    }

    /// Returns the number of backing files kept.
    pub(super) fn len(&self) -> usize {
        self.lock().cached.len()
    }
}
