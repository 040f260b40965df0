//! Objects that the store does not have any more.

use std::collections::{BTreeMap, BTreeSet};

use crate::merge::staged_tree::{MergeResult, StagedTree};
use crate::merge::{ConflictKind, DentryKey, Ino, Tree, is_same};
use crate::object::{Kind, VersionedObject};

/// An object that is gone: as it was, and the names that it lost here by that.
pub(super) struct RemovedObject {
    pub before: VersionedObject,
    pub lost: Vec<DentryKey>,
}

impl StagedTree<'_> {
    /// By another node: what is in a directory before the directory.
    pub(super) fn follow_gone(&mut self, mut gone: BTreeMap<Ino, RemovedObject>) -> MergeResult {
        let fallen = gone.iter().filter_map(|(num, gone)| Some((*num, Some(gone.lost.first()?.clone()))));
        self.set_detached_dirs(fallen.collect());
        let mut inside: BTreeMap<Ino, BTreeSet<Ino>> = BTreeMap::new();
        for (num, at) in gone.iter().flat_map(|(num, gone)| gone.lost.iter().map(move |at| (*num, at))) {
            inside.entry(at.parent).or_default().insert(num);
        }
        // Down to the deepest, and from there on where the way to it came from.
        let mut way = Vec::new();
        while let Some(num) = way.last().copied().or_else(|| gone.keys().next().copied()) {
            if way.is_empty() {
                way.push(num);
            }
            if let Some(inner) = inside.get(&num).and_then(|inside| inside.first())
                && way.len() < gone.len()
            {
                way.push(*inner);
                continue;
            }
            way.pop();
            if let Some(one) = gone.remove(&num) {
                for at in &one.lost {
                    if let Some(inside) = inside.get_mut(&at.parent) {
                        inside.remove(&num);
                    }
                }
                self.follow_one_gone(num, one)?;
                self.unset_detached_dir(num);
            }
        }
        Ok(())
    }

    fn follow_one_gone(&mut self, num: Ino, gone: RemovedObject) -> MergeResult {
        let names = self.names(Tree::Local, num)?;
        let replaced = self.deletion_candidates.remove(&num).unwrap_or_default();
        let deleted_here = names.is_empty() && gone.lost.is_empty() && replaced.is_empty();
        let changed = self.was_changed(num, &gone.before)?;
        if deleted_here || (names.is_empty() && replaced.is_empty() && !changed) {
            return if self.is_wanted(num)? { self.assign_new_id(num) } else { self.forget(num) };
        }
        self.assign_new_id(num)?;
        if !changed && !gone.lost.is_empty() && !names.is_empty() {
            // It got more names here, and the store knew nothing of those: they stay.
            return Ok(());
        }
        let lost = gone.lost.first().filter(|_| changed);
        let Some(place) = lost.or(replaced.first()).or(names.first()).cloned() else { return Ok(()) };
        if self.link(&place)? == Some(num) {
            self.clear_name(&place)?;
        }
        if let Some(instead) = self.link(&place)?
            && let (Some(ours), Some(theirs)) = (self.local(num)?, self.local(instead)?)
            && ours.kind != Kind::Directory
            && is_same(&ours, &theirs)
        {
            return if self.is_alive(num)? { Ok(()) } else { self.forget(num) };
        }
        let replaced = self.link(&place)?.is_some();
        let kind = if replaced { ConflictKind::Modified } else { ConflictKind::ChangedDeleted };
        self.keep(&place, kind, Some(num), None)?;
        // With its place known: what comes back into it is not to be above it.
        if self.is_directory(num)? { self.hold_directory(num) } else { Ok(()) }
    }

    /// A directory that is kept beside the tree: what the store has elsewhere goes back there, and conflicts inside are part
    /// of the one at the directory.
    pub(super) fn hold_directory(&mut self, num: Ino) -> MergeResult {
        // What goes back may be above the place of this one: nobody asks for a way up before it has.
        self.restore_to_remote_parent(num)?;
        self.join_sides(num)
    }

    fn restore_to_remote_parent(&mut self, num: Ino) -> MergeResult {
        let mut ways = vec![(num, self.children(Tree::Local, num)?.into_iter())];
        while let Some((parent, children)) = ways.last_mut() {
            let parent = *parent;
            let Some((name, child)) = children.next() else {
                ways.pop();
                continue;
            };
            if self.base(child)?.is_some() {
                self.set_link(&DentryKey { parent, name }, None);
                self.bring_home(child)?;
            } else if self.is_directory(child)? {
                ways.push((child, self.children(Tree::Local, child)?.into_iter()));
            }
        }
        Ok(())
    }

    /// To where the store has it, unless it is somewhere.
    fn bring_home(&mut self, num: Ino) -> MergeResult {
        if !self.is_alive(num)? {
            for home in self.names(Tree::Base, num)? {
                self.place_remote(&home, num)?;
            }
        }
        Ok(())
    }

    /// Only where there are conflicts: each time that one more directory around it is gone, all of a tree would else be gone
    /// through again.
    fn join_sides(&mut self, num: Ino) -> MergeResult {
        self.join_sides_in(num)?;
        let mut ways = vec![self.children(Tree::Local, num)?.into_values()];
        let (mut leading, mut as_of) = (BTreeSet::new(), None);
        while let Some(children) = ways.last_mut() {
            let Some(child) = children.next() else {
                ways.pop();
                continue;
            };
            if self.base(child)?.is_some() || !self.is_directory(child)? {
                continue;
            }
            if as_of != Some(self.link_generation) {
                (leading, as_of) = (self.leading_to_conflicts()?, Some(self.link_generation));
            }
            if leading.contains(&child) {
                self.join_sides_in(child)?;
                ways.push(self.children(Tree::Local, child)?.into_values());
            }
        }
        Ok(())
    }

    fn join_sides_in(&mut self, num: Ino) -> MergeResult {
        for at in self.conflicts_in(num)? {
            if self.link(&at)?.is_none()
                && let Some(conflict) = self.conflict(&at)?
            {
                // What has its place here is not above it.
                let is_here = match conflict.mine {
                    Some(mine) => self.place(mine)?.as_ref() == Some(&at),
                    None => false,
                };
                self.set_conflict(&at, None);
                match conflict.mine {
                    Some(mine) if self.base(mine)?.is_some() => self.bring_home(mine)?,
                    Some(mine) if is_here => self.stay(&at, mine),
                    Some(mine) if self.fits(&at, mine)? => self.set_link(&at, Some(mine)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Directories that the store does not have, and in which there is a conflict, or one that leads to it.
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

    /// Whether a side of a conflict can be what its name leads to: a directory has one name, and is not below itself.
    fn fits(&self, at: &DentryKey, mine: Ino) -> MergeResult<bool> {
        Ok(!self.is_directory(mine)? || !(self.is_alive(mine)? || self.is_below(at.parent, mine)?))
    }
}
