//! Which names can only change together.

use std::collections::{BTreeMap, BTreeSet};

use super::{AtomicGroup, Differing, Pushing};
use crate::merge::cycle::CycleDetector;
use crate::merge::staged_tree::MergeResult;
use crate::merge::{DentryKey, Ino, ROOT, Tree};

impl Pushing<'_> {
    /// The names that differ and that are tied to this one by objects that were or are at both, with new directories that can be
    /// made only once these names have changed, and in which some of them are.
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
                    // What does not differ would be found again for ever.
                    if self.differing(&at)?.is_some() {
                        names.push(at);
                    }
                }
            }
        }
        Ok(Some((changes, objects)))
    }

    /// What else has to change with these names: in directories that are to be no more, those on the way from one of these to
    /// another; and the names of new directories in which these are, where those are below one of these, or take the place of a
    /// directory that is empty only once some of these have changed, with all else that goes from the one into the other.
    fn between(&self, changes: &BTreeMap<DentryKey, Differing>) -> MergeResult<BTreeSet<DentryKey>> {
        let mut between = BTreeSet::new();
        if changes.len() > 1 {
            let ways = self.emptied(changes, |place| changes.contains_key(place))?;
            between.extend(ways.into_iter().flatten());
        }
        between.extend(self.moved_over(changes)?);
        // What is only new is not below itself, and takes no place.
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
                let emptied = if is_among { None } else { self.emptied(changes, |place| *place == name)? };
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

    /// What goes from directories that these names take away into new ones that they lead to.
    fn moved_over(&self, changes: &BTreeMap<DentryKey, Differing>) -> MergeResult<Vec<DentryKey>> {
        let mut moved = Vec::new();
        for (base, local) in changes.values() {
            // Most that are taken away have nothing in their place: they may have held very much.
            let (Some((gone, _)), Some(new)) = (base, local) else { continue };
            if self.id(*new, &[])?.is_some() || !self.trees.names(Tree::Local, *gone)?.is_empty() {
                continue;
            }
            for (name, child) in self.trees.children(Tree::Base, *gone)? {
                let at = DentryKey { parent: *gone, name };
                if !changes.contains_key(&at)
                    && !self.going.contains(&at)
                    && self.is_in_new(child, changes)?
                {
                    moved.push(at);
                }
            }
        }
        Ok(moved)
    }

    /// Whether an object has a name in a new directory that is there once these names have changed.
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

    /// Whether some of these are in directories that are to be no more, and the topmost of which goes by a change of such a name;
    /// the names on the ways to them.
    fn emptied(
        &self,
        changes: &BTreeMap<DentryKey, Differing>,
        goes_by: impl Fn(&DentryKey) -> bool,
    ) -> MergeResult<Option<BTreeSet<DentryKey>>> {
        let mut emptied = None;
        for (at, (base, _)) in changes {
            let (mut num, mut way) = (at.parent, Vec::new());
            // Up, and not down: the tree that goes may be a large one.
            while base.is_some() && num != ROOT && self.trees.names(Tree::Local, num)?.is_empty() {
                let Some(place) = self.trees.names(Tree::Base, num)?.into_iter().next() else { break };
                if goes_by(&place) {
                    emptied.get_or_insert_with(BTreeSet::new).extend(way);
                    break;
                }
                num = place.parent;
                way.push(place);
            }
        }
        Ok(emptied)
    }
}
