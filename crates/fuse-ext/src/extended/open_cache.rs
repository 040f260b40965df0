//! Files that the program opens: backing files kept for it, and how many of its opens last.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use shunt_fuse::{Backing, NodeId};

use crate::Version;
use crate::builtin::{OPEN_COUNTERS, Tables};

/// Backing files kept at most. Each holds an inode of the lower file system: what is removed there gives back its room
/// only when it is let go here.
const MAX_CACHED_OPENS: usize = 4096;

/// All opens of an inode that last must use one backing file, so one that the program handed out is kept until its
/// opens ended.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    tables: Option<Arc<Tables>>,
    held: HashMap<NodeId, Backing>,
    /// Oldest first. May name what is not held any more.
    order: VecDeque<NodeId>,
    /// Opens of earlier programs, less ends that came to the daemon: together with the program's counters these are the
    /// opens that last. Empty until there was a program.
    elsewhere: Vec<u64>,
}

impl State {
    /// Anyone who shares its counter included: it errs to the side of caution.
    fn is_open(&self, node: NodeId) -> bool {
        let elsewhere = self.elsewhere.get(Tables::opened_index(node)).copied().unwrap_or(0);
        elsewhere.wrapping_add(self.tables.as_ref().map_or(0, |tables| tables.opened(node))) != 0
    }

    /// From here on the daemon decides, if no open lasts.
    fn let_go(&mut self, node: NodeId) -> Option<Backing> {
        if !self.held.contains_key(&node) {
            return None;
        }
        // The program counts an open before it looks: after this, it either sees the change or is seen.
        if let Some(tables) = &self.tables {
            tables.opening_changed(node);
        }
        if self.is_open(node) { None } else { self.held.remove(&node) }
    }

    fn shrink(&mut self) -> Vec<Backing> {
        let mut gone = Vec::new();
        for _ in 0..self.order.len() {
            if self.held.len() <= MAX_CACHED_OPENS && self.order.len() <= 2 * MAX_CACHED_OPENS {
                break;
            }
            let Some(oldest) = self.order.pop_front() else { break };
            gone.extend(self.let_go(oldest));
            if self.held.contains_key(&oldest) {
                self.order.push_back(oldest);
            }
        }
        gone
    }
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A program begins or, with none, ended: from here on it counts nothing any more.
    pub(super) fn attach(&self, tables: Option<Arc<Tables>>) {
        let mut state = self.lock();
        state.elsewhere.resize(OPEN_COUNTERS, 0);
        let old = std::mem::replace(&mut state.tables, tables);
        for (sum, count) in state.elsewhere.iter_mut().zip(old.iter().flat_map(|old| old.all_opened())) {
            *sum = sum.wrapping_add(count);
        }
    }

    /// Has the program open `node` from now on, if nothing changed since.
    pub(super) fn keep(&self, node: NodeId, since: Version, backing: &Backing) {
        let mut state = self.lock();
        let Some(tables) = state.tables.clone() else { return };
        if state.held.insert(node, backing.clone()).is_none() {
            state.order.push_back(node);
        }
        tables.store_open(node, since, backing);
        let gone = state.shrink();
        // Ending a registration is a system call: not under the lock.
        drop(state);
        drop(gone);
    }

    /// What an open of `node` must be served with, whatever the file system says.
    pub(super) fn backing(&self, node: NodeId) -> Option<Backing> {
        self.lock().held.get(&node).cloned()
    }

    /// The kernel may read it by itself.
    pub(super) fn holds(&self, node: NodeId) -> bool {
        self.lock().held.contains_key(&node)
    }

    /// From here on the daemon decides how `node` is opened, if no open lasts.
    pub(super) fn let_go(&self, node: NodeId) {
        let gone = self.lock().let_go(node);
        drop(gone);
    }

    /// Of all inodes.
    pub(super) fn let_all_go(&self) {
        let mut state = self.lock();
        let nodes: Vec<NodeId> = state.held.keys().copied().collect();
        let gone: Vec<Backing> = nodes.into_iter().filter_map(|node| state.let_go(node)).collect();
        drop(state);
        drop(gone);
    }

    /// An open by a program ended, and the daemon was told: its program is gone.
    pub(super) fn closed(&self, node: NodeId) {
        let mut state = self.lock();
        if let Some(count) = state.elsewhere.get_mut(Tables::opened_index(node)) {
            *count = count.wrapping_sub(1);
        }
    }

    /// Backing files kept.
    pub(super) fn len(&self) -> usize {
        self.lock().held.len()
    }
}
