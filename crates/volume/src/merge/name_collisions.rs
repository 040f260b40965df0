//! Places names of the store in the local tree, and resolves collisions with local names: equal files and new directories are
//! merged, anything else becomes a conflict. Local moves that would form a cycle with the store's are undone.

use crate::merge::cycle::{CycleDetector, cycle_error};
use crate::merge::staged_tree::{MergeResult, StagedTree};
use crate::merge::{ConflictKind, DentryKey, Ino, PlanError, ROOT, Tree, is_same};
use crate::object::Kind;

/// Placing a name may restore other objects recursively: minimum stack space for each level, and the size by which the stack
/// grows.
const MIN_STACK_BYTES: usize = 128 << 10;
const STACK_STEP_BYTES: usize = 1 << 20;

impl StagedTree<'_> {
    /// Gives a name that `child` has in the store to it in the local tree. An object in the way is merged, or kept as the local
    /// side of a conflict.
    pub(super) fn place_remote(&mut self, at: &DentryKey, child: Ino) -> MergeResult {
        stacker::maybe_grow(MIN_STACK_BYTES, STACK_STEP_BYTES, || self.place_remote_name(at, child))
    }

    fn place_remote_name(&mut self, at: &DentryKey, child: Ino) -> MergeResult {
        let at = &self.current_key(at);
        if !self.has_local_name(at.parent)? {
            self.revive(at.parent)?;
        }
        // Either may just have been identified with a local object.
        let (at, child) = (&self.current_key(at), self.alias(child));
        // No path up leads through a directory without entries.
        if self.is_directory(child)? && (at.parent == child || !self.is_known_empty(child)?) {
            self.break_cycles(at.parent, child)?;
        }
        match self.link(at)? {
            Some(there) if there != child => self.collide(at, there, child),
            _ => {
                self.set_link(at, Some(child));
                Ok(())
            }
        }
    }

    /// Undoes local moves until `child` can be below `parent`.
    fn break_cycles(&mut self, parent: Ino, child: Ino) -> MergeResult {
        loop {
            // The base has no cycle, so a path up that reaches `child` has a step that was changed locally. That may be a step
            // through a conflict.
            let (mut at, mut moved, mut way) = (parent, None, CycleDetector::default());
            while at != ROOT && at != child {
                let Some(location) = self.location(at)? else { return Ok(()) };
                if moved.is_none()
                    && self.base(at)?.is_some()
                    && !self.names(Tree::Base, at)?.contains(&location)
                {
                    moved = Some((at, location.clone()));
                }
                at = location.parent;
                if way.closes_cycle(at) {
                    return Err(cycle_error());
                }
            }
            if at == ROOT {
                return Ok(());
            }
            let Some((moved, location)) = moved else { return Err(cycle_error()) };
            if self.has_local_name(moved)? {
                self.undo_move(moved, &location)?;
            } else {
                // It was deleted locally, and exists only as the side of a conflict.
                self.set_conflict(&location, None);
                self.revive_changed(moved)?;
            }
        }
    }

    /// Undoes a local move to `name` that is incompatible with the store: the object returns to its location in the store.
    pub(super) fn undo_move(&mut self, moved: Ino, name: &DentryKey) -> MergeResult {
        // It gets its location back before other objects are restored: their paths up may lead through it.
        self.set_link(name, None);
        self.record_conflict(name, ConflictKind::Moved, Some(moved), None)?;
        if !self.has_local_name(moved)? {
            for at in self.names(Tree::Base, moved)? {
                self.place_remote(&at, moved)?;
            }
        }
        self.restore_remote_name(name)
    }

    /// Removes a local name, and restores the object that this name had displaced.
    pub(super) fn clear_name(&mut self, at: &DentryKey) -> MergeResult {
        self.set_link(at, None);
        self.restore_remote_name(at)
    }

    /// Restores the object that has this name in the store and lost its local names only to the one removed from here.
    pub(super) fn restore_remote_name(&mut self, at: &DentryKey) -> MergeResult {
        if let Some((before, _)) = self.base_link(at)?
            && !self.has_local_name(before)?
        {
            self.place_remote(at, before)?;
        }
        Ok(())
    }

    /// Restores a directory that was deleted locally and changed in the store, with all that was in it. The deletion is the
    /// local side of a conflict at the topmost directory restored.
    pub(super) fn revive(&mut self, num: Ino) -> MergeResult {
        let mut displaced = Vec::new();
        let (mut num, mut way) = (num, CycleDetector::default());
        let top = loop {
            let Some(at) = self.names(Tree::Base, num)?.into_iter().next() else {
                return Err(PlanError::Log("a name in a directory that does not exist".into()));
            };
            if self.has_local_name(at.parent)? {
                break at;
            }
            let above = at.parent;
            if way.closes_cycle(above) {
                return Err(cycle_error());
            }
            displaced.push((at, num));
            num = above;
        };
        self.place_remote(&top, num)?;
        self.record_conflict(&top, ConflictKind::DeletedChanged, None, None)?;
        self.restore(self.alias(num))?;
        while let Some((at, num)) = displaced.pop() {
            if !self.has_local_name(num)? {
                self.place_remote(&at, num)?;
            }
            self.restore(self.alias(num))?;
        }
        Ok(())
    }

    /// Restores the entries below a directory in the base that were not moved elsewhere.
    fn restore(&mut self, num: Ino) -> MergeResult {
        let mut ways = vec![(num, self.children(Tree::Base, num)?.into_iter())];
        while let Some((parent, children)) = ways.last_mut() {
            let parent = *parent;
            let Some((name, child)) = children.next() else {
                ways.pop();
                continue;
            };
            let at = DentryKey { parent, name };
            if self.link(&at)?.is_none() && !self.has_local_name(child)? {
                self.place_remote(&at, child)?;
                ways.push((child, self.children(Tree::Base, child)?.into_iter()));
            }
        }
        Ok(())
    }

    /// Resolves a collision: a name refers to `local` locally, and to `remote` in the store.
    fn collide(&mut self, at: &DentryKey, local: Ino, remote: Ino) -> MergeResult {
        let (Some(ours), Some(other)) = (self.local(local)?, self.local(remote)?) else {
            self.set_link(at, Some(remote));
            return Ok(());
        };
        if let Some(lost_names) = self.deletion_candidates.get_mut(&local) {
            lost_names.push(at.clone());
            self.set_link(at, Some(remote));
            return Ok(());
        }
        let new_here = self.base(local)?.is_none();
        // An object already identified with a local one keeps its number and its local names.
        let new_there = self.created.contains(&remote) && !self.is_adopted(remote);
        let directories = ours.kind == Kind::Directory && other.kind == Kind::Directory;
        if new_here && new_there && (directories || is_same(&ours, &other)) {
            return self.adopt(local, remote);
        }
        self.set_link(at, Some(remote));
        if new_here && !directories && is_same(&ours, &other) {
            return self.delete_unreachable(local);
        }
        if new_here {
            if ours.kind == Kind::Directory {
                self.prepare_conflict_dir(local)?;
            }
            return self.record_conflict(at, ConflictKind::Created, Some(local), None);
        }
        // A local move or link of an object that the store has elsewhere.
        self.record_conflict(at, ConflictKind::Moved, Some(local), None)?;
        if !self.has_local_name(local)? {
            for home in self.names(Tree::Base, local)? {
                self.place_remote(&home, local)?;
            }
        }
        Ok(())
    }
}
