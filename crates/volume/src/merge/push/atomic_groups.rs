//! Determines which names have to change in one commit: both ends of a move, names that are exchanged, and directories that can
//! be replaced only after their entries have moved. A store applies a commit completely or not at all, so no node sees an
//! intermediate state.

use std::collections::{BTreeMap, BTreeSet};

use super::{AtomicGroup, Differing, PushPlanner};
use crate::merge::cycle::CycleDetector;
use crate::merge::staged_tree::MergeResult;
use crate::merge::{DentryKey, Ino, ROOT, Tree};

impl PushPlanner<'_> {
    /// Returns the differing names connected with `at`: by objects that were or are at several of them, and by new directories
    /// that can be created only after these names have changed and that contain some of them.
    pub(super) fn atomic_group(&self, at: &DentryKey) -> MergeResult<Option<AtomicGroup>> {
        if self.differing(at)?.is_none() {
            return Ok(None);
        }
        let (mut changes, mut objects) = (BTreeMap::new(), BTreeSet::new());
        let mut names = vec![at.clone()];
        while let Some(at) = names.pop() {
            if let Some(change) = self.differing(&at)? {
                for num in change.0.map(|(child, _)| child).into_iter().chain(change.1) {
                    if objects.insert(num) {
                        names.extend(self.trees.names(Tree::Local, num)?);
                        names.extend(self.trees.names(Tree::Base, num)?);
                    }
                }
                changes.insert(at, change);
            }
            if names.is_empty() {
                for at in self.between(&changes)? {
                    // A name that does not differ would be found again in every round.
                    if self.differing(&at)?.is_some() {
                        names.push(at);
                    }
                }
            }
        }
        Ok(Some((changes, objects)))
    }

    /// Returns further names that have to change with these: in directories to be deleted, those on the path from one of these
    /// to another; names of new directories that contain some of these, if they are below one of these or replace a directory
    /// that is empty only after some of these have changed; and all else that moves from the one into the other.
    fn between(&self, changes: &BTreeMap<DentryKey, Differing>) -> MergeResult<BTreeSet<DentryKey>> {
        let mut between = BTreeSet::new();
        if changes.len() > 1 {
            let ways = self.emptied(changes, |at| changes.contains_key(at))?;
            between.extend(ways.into_iter().flatten());
        }
        between.extend(self.moved_over(changes)?);
        // A directory that is only new is not below itself and replaces nothing.
        if changes.len() == 1 && changes.values().all(|(base, _)| base.is_none()) {
            return Ok(between);
        }
        let mut walked = BTreeSet::new();
        for (at, (_, local)) in changes {
            if local.is_none() || !walked.insert(at.parent) {
                continue;
            }
            let (mut num, mut way, mut up) = (at.parent, Vec::new(), CycleDetector::default());
            while self.id(num, &[])?.is_none() && !up.closes_cycle(num) {
                let Some(name) = self.trees.names(Tree::Local, num)?.into_iter().next() else { break };
                num = name.parent;
                let is_among = changes.contains_key(&name);
                let emptied = if is_among { None } else { self.emptied(changes, |at| *at == name)? };
                let is_tied = is_among || emptied.is_some();
                way.push(name);
                if is_tied {
                    let all = way.into_iter().chain(emptied.into_iter().flatten());
                    between.extend(all.filter(|at| !changes.contains_key(at)));
                    break;
                }
            }
        }
        Ok(between)
    }

    /// Returns the names that move from directories removed by these changes into new ones that replace them.
    fn moved_over(&self, changes: &BTreeMap<DentryKey, Differing>) -> MergeResult<Vec<DentryKey>> {
        let mut moved = Vec::new();
        for (base, local) in changes.values() {
            // Most removed directories are not replaced, and they may have had very many entries.
            let (Some((removed_dir, _)), Some(new)) = (base, local) else { continue };
            if self.id(*new, &[])?.is_some() || !self.trees.names(Tree::Local, *removed_dir)?.is_empty() {
                continue;
            }
            for (name, child) in self.trees.children(Tree::Base, *removed_dir)? {
                let at = DentryKey { parent: *removed_dir, name };
                if !changes.contains_key(&at)
                    && !self.changing_names.contains(&at)
                    && self.is_in_new(child, changes)?
                {
                    moved.push(at);
                }
            }
        }
        Ok(moved)
    }

    /// Reports whether an object has a name in a new directory that exists once these names have changed.
    fn is_in_new(&self, child: Ino, changes: &BTreeMap<DentryKey, Differing>) -> MergeResult<bool> {
        for name in self.trees.names(Tree::Local, child)? {
            let (mut num, mut way) = (name.parent, CycleDetector::default());
            while self.id(num, &[])?.is_none() && !way.closes_cycle(num) {
                let Some(above) = self.trees.names(Tree::Local, num)?.into_iter().next() else { break };
                if changes.contains_key(&above) {
                    return Ok(true);
                }
                num = above.parent;
            }
        }
        Ok(false)
    }

    /// Returns the names on the paths from these names up to a directory that is to be deleted and whose own
    /// name `is_selected` accepts; `None` if there is no such directory.
    fn emptied(
        &self,
        changes: &BTreeMap<DentryKey, Differing>,
        is_selected: impl Fn(&DentryKey) -> bool,
    ) -> MergeResult<Option<BTreeSet<DentryKey>>> {
        let mut emptied = None;
        for (at, (base, _)) in changes {
            let (mut num, mut path) = (at.parent, Vec::new());
            // Upwards: the tree to be deleted may be large.
            while base.is_some() && num != ROOT && self.trees.names(Tree::Local, num)?.is_empty() {
                let Some(name) = self.trees.names(Tree::Base, num)?.into_iter().next() else { break };
                if is_selected(&name) {
                    emptied.get_or_insert_with(BTreeSet::new).extend(path);
                    break;
                }
                num = name.parent;
                path.push(name);
            }
        }
        Ok(emptied)
    }
}
