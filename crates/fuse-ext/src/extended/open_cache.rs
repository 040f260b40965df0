//! Files that the program may open: keeps their backing files registered, and counts the program's opens.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use shunt_fuse::{Backing, NodeId};

use crate::Version;
use crate::builtin::{OPEN_COUNTERS, Tables};

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
    cached: HashMap<NodeId, Backing>,
    /// Oldest first. May contain nodes that are no longer held.
    order: VecDeque<NodeId>,
    /// Opens by earlier programs, minus releases that reached the daemon: together with the program's counters these are the
    /// current opens. Empty until a program was attached.
    earlier_opens: Vec<u64>,
}

impl State {
    /// Reports whether the program has the node open. Nodes that share its counter are included, so this errs on the safe side.
    fn is_open(&self, node: NodeId) -> bool {
        let earlier_opens = self.earlier_opens.get(Tables::opened_index(node)).copied().unwrap_or(0);
        earlier_opens.wrapping_add(self.tables.as_ref().map_or(0, |tables| tables.opened(node))) != 0
    }

    /// Stops the program from opening the node, and releases its backing file if it is not open.
    fn evict(&mut self, node: NodeId) -> Option<Backing> {
        if !self.cached.contains_key(&node) {
            return None;
        }
        // The program increments the counter before it checks the version: after this, either it sees the change or its open is
        // counted here.
        if let Some(tables) = &self.tables {
            tables.opening_changed(node);
        }
        if self.is_open(node) { None } else { self.cached.remove(&node) }
    }

    fn shrink(&mut self) -> Vec<Backing> {
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

    /// Switches to the tables of a new program or, with `None`, to no program: the old one no longer counts.
    pub(super) fn attach(&self, tables: Option<Arc<Tables>>) {
        let mut state = self.lock();
        state.earlier_opens.resize(OPEN_COUNTERS, 0);
        let old = std::mem::replace(&mut state.tables, tables);
        for (sum, count) in state.earlier_opens.iter_mut().zip(old.iter().flat_map(|old| old.all_opened())) {
            *sum = sum.wrapping_add(count);
        }
    }

    /// Lets the program open `node` from now on, if nothing changed since.
    pub(super) fn insert(&self, node: NodeId, since: Version, backing: &Backing) {
        let mut state = self.lock();
        let Some(tables) = state.tables.clone() else { return };
        if state.cached.insert(node, backing.clone()).is_none() {
            state.order.push_back(node);
        }
        tables.store_open(node, since, backing);
        let evicted = state.shrink();
        // Ending a registration is a system call: not under the lock.
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
        let evicted: Vec<Backing> = nodes.into_iter().filter_map(|node| state.evict(node)).collect();
        drop(state);
        drop(evicted);
    }

    /// Counts a release of an open by a program that reached the daemon: that program was replaced.
    pub(super) fn closed(&self, node: NodeId) {
        let mut state = self.lock();
        if let Some(count) = state.earlier_opens.get_mut(Tables::opened_index(node)) {
            *count = count.wrapping_sub(1);
        }
    }

    /// Returns the number of backing files kept.
    pub(super) fn len(&self) -> usize {
        self.lock().cached.len()
    }
}
