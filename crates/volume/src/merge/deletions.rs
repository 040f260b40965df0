//! Merges deletions: objects that were removed from the store. An object that is unchanged locally is deleted; one that was
//! changed is kept as the local side of a conflict, as an object that the store does not know.

use std::collections::{BTreeMap, BTreeSet};

use crate::merge::staged_tree::{MergeResult, StagedTree};
use crate::merge::{ConflictKind, DentryKey, Ino, Tree, is_same};
use crate::object::{Kind, VersionedObject};

/// An object removed from the store: its last version, and the names that it lost in the local tree.
pub(super) struct RemovedObject {
    pub before: VersionedObject,
    pub lost_names: Vec<DentryKey>,
}

impl StagedTree<'_> {
    /// Merges deletions by another node; entries of a directory before the directory.
    pub(super) fn merge_deletions(&mut self, mut removed: BTreeMap<Ino, RemovedObject>) -> MergeResult {
        let fallen = removed
            .iter()
            .filter_map(|(num, removed)| Some((*num, Some(removed.lost_names.first()?.clone()))));
        self.set_detached_dirs(fallen.collect());
        let mut inside: BTreeMap<Ino, BTreeSet<Ino>> = BTreeMap::new();
        for (num, at) in
            removed.iter().flat_map(|(num, removed)| removed.lost_names.iter().map(move |at| (*num, at)))
        {
            inside.entry(at.parent).or_default().insert(num);
        }
        // Depth-first: down to the deepest entry, and then back up the path.
        let mut path = Vec::new();
        while let Some(num) = path.last().copied().or_else(|| removed.keys().next().copied()) {
            if path.is_empty() {
                path.push(num);
            }
            if let Some(inner) = inside.get(&num).and_then(|inside| inside.first())
                && path.len() < removed.len()
            {
                path.push(*inner);
                continue;
            }
            path.pop();
            if let Some(one) = removed.remove(&num) {
                for at in &one.lost_names {
                    if let Some(inside) = inside.get_mut(&at.parent) {
                        inside.remove(&num);
                    }
                }
                self.merge_deletion(num, one)?;
                self.unset_detached_dir(num);
            }
        }
        Ok(())
    }

    fn merge_deletion(&mut self, num: Ino, removed: RemovedObject) -> MergeResult {
        let names = self.names(Tree::Local, num)?;
        let replaced = self.deletion_candidates.remove(&num).unwrap_or_default();
        let deleted_here = names.is_empty() && removed.lost_names.is_empty() && replaced.is_empty();
        let changed = self.was_changed(num, &removed.before)?;
        if deleted_here || (names.is_empty() && replaced.is_empty() && !changed) {
            return if self.is_reachable(num)? {
                self.assign_new_id(num)
            } else {
                self.delete_unreachable(num)
            };
        }
        self.assign_new_id(num)?;
        if !changed && !removed.lost_names.is_empty() && !names.is_empty() {
            // It has more names locally, unknown to the store: these stay.
            return Ok(());
        }
        let lost = removed.lost_names.first().filter(|_| changed);
        let Some(at) = lost.or(replaced.first()).or(names.first()).cloned() else { return Ok(()) };
        if self.link(&at)? == Some(num) {
            self.clear_name(&at)?;
        }
        if let Some(instead) = self.link(&at)?
            && let (Some(local), Some(remote)) = (self.local(num)?, self.local(instead)?)
            && local.kind != Kind::Directory
            && is_same(&local, &remote)
        {
            return if self.has_local_name(num)? { Ok(()) } else { self.delete_unreachable(num) };
        }
        let replaced = self.link(&at)?.is_some();
        let kind = if replaced { ConflictKind::Modified } else { ConflictKind::ChangedDeleted };
        self.record_conflict(&at, kind, Some(num), None)?;
        // Its location is known now: objects that return into it must not become its ancestors.
        if self.is_directory(num)? { self.prepare_conflict_dir(num) } else { Ok(()) }
    }

    /// Prepares a directory that is kept as the local side of a conflict: objects that the store has elsewhere return there,
    /// and conflicts inside become part of the directory's.
    pub(super) fn prepare_conflict_dir(&mut self, num: Ino) -> MergeResult {
        // A returning object may be an ancestor of this directory: no path up is followed before it has returned.
        self.restore_to_remote_parent(num)?;
        self.dissolve_inner_conflicts(num)
    }

    fn restore_to_remote_parent(&mut self, num: Ino) -> MergeResult {
        let mut pending = vec![(num, self.children(Tree::Local, num)?.into_iter())];
        while let Some((parent, children)) = pending.last_mut() {
            let parent = *parent;
            let Some((name, child)) = children.next() else {
                pending.pop();
                continue;
            };
            if self.base(child)?.is_some() {
                self.set_link(&DentryKey { parent, name }, None);
                self.restore_remote_names(child)?;
            } else if self.is_directory(child)? {
                pending.push((child, self.children(Tree::Local, child)?.into_iter()));
            }
        }
        Ok(())
    }

    /// Restores an object to its locations in the store, unless it has a local name.
    fn restore_remote_names(&mut self, num: Ino) -> MergeResult {
        if !self.has_local_name(num)? {
            for home in self.names(Tree::Base, num)? {
                self.place_remote(&home, num)?;
            }
        }
        Ok(())
    }

    /// Dissolves conflicts within a directory. Visits only subdirectories that lead to conflicts: otherwise a whole tree would
    /// be walked again for each further ancestor that is deleted.
    fn dissolve_inner_conflicts(&mut self, num: Ino) -> MergeResult {
        self.dissolve_conflicts_in(num)?;
        let mut pending = vec![self.children(Tree::Local, num)?.into_values()];
        let (mut leading, mut as_of) = (BTreeSet::new(), None);
        while let Some(children) = pending.last_mut() {
            let Some(child) = children.next() else {
                pending.pop();
                continue;
            };
            if self.base(child)?.is_some() || !self.is_directory(child)? {
                continue;
            }
            if as_of != Some(self.link_generation) {
                (leading, as_of) = (self.leading_to_conflicts()?, Some(self.link_generation));
            }
            if leading.contains(&child) {
                self.dissolve_conflicts_in(child)?;
                pending.push(self.children(Tree::Local, child)?.into_values());
            }
        }
        Ok(())
    }

    fn dissolve_conflicts_in(&mut self, num: Ino) -> MergeResult {
        for at in self.conflicts_in(num)? {
            if self.link(&at)?.is_none()
                && let Some(conflict) = self.conflict(&at)?
            {
                // An object whose location is this conflict is not its ancestor.
                let is_here = match conflict.local {
                    Some(local) => self.location(local)?.as_ref() == Some(&at),
                    None => false,
                };
                self.set_conflict(&at, None);
                match conflict.local {
                    Some(local) if self.base(local)?.is_some() => self.restore_remote_names(local)?,
                    Some(local) if is_here => self.name_conflict_side(&at, local),
                    Some(local) if self.can_link(&at, local)? => self.set_link(&at, Some(local)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Returns the directories unknown to the store that contain a conflict, directly or below.
    fn leading_to_conflicts(&mut self) -> MergeResult<BTreeSet<Ino>> {
        let mut leading = BTreeSet::new();
        let mut next: Vec<Ino> = self.in_conflict()?.iter().map(|at| at.parent).collect();
        while let Some(num) = next.pop() {
            if self.base(num)?.is_none() && leading.insert(num) {
                next.extend(self.names(Tree::Local, num)?.into_iter().map(|at| at.parent));
                next.extend(self.sides(num)?.into_iter().map(|at| at.parent));
            }
        }
        Ok(leading)
    }

    /// Reports whether the local side of a conflict can be linked at the name: a directory has one name, and is not below
    /// itself.
    fn can_link(&self, at: &DentryKey, local: Ino) -> MergeResult<bool> {
        Ok(!self.is_directory(local)? || !(self.has_local_name(local)? || self.is_below(at.parent, local)?))
    }
}
