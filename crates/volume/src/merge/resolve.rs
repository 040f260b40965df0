//! Resolves a conflict: one side is chosen, or both are kept under different names. The result are local changes, which are
//! pushed like any others.

use crate::id::NodeName;
use crate::merge::staged_tree::{Changes, IdAllocator, MergeResult, StagedTree};
use crate::merge::{ConflictKind, DentryKey, Ino, PlanError, Tree, Trees};
use crate::object::Kind;
use crate::store::validate::MAX_NAME_BYTES;

/// A side of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The side of this node.
    Local,
    /// The side of the store.
    Remote,
}

/// Returns the name of this node's version next to another one: the name, `.conflict-`, the node; from the second on `~` and a
/// number. A name that gets too long is truncated before that.
pub(crate) fn conflict_copy_name(name: &[u8], node: &NodeName, n: u32) -> Vec<u8> {
    let tail = match n {
        0 | 1 => format!(".conflict-{node}"),
        n => format!(".conflict-{node}~{n}"),
    };
    let kept = name.len().min(MAX_NAME_BYTES.saturating_sub(tail.len()));
    [&name[..kept], tail.as_bytes()].concat()
}

/// Keeps both sides of the conflict at a name: the store's under the name, and this node's, which is called `own`,
/// next to it. A local side that was deleted or has another name in the tree gets no such name.
///
/// # Errors
/// [`PlanError::Cannot`] if there is no conflict; [`PlanError::Read`].
pub fn keep_both(
    trees: &dyn Trees,
    fresh: &mut dyn IdAllocator,
    at: &DentryKey,
    own: &NodeName,
) -> Result<Changes, PlanError> {
    let Some(conflict) = trees.conflict(at)? else { return Err(PlanError::Cannot("there is no conflict")) };
    let mut draft = StagedTree::new(trees, fresh, conflict.remote_node.clone());
    draft.set_conflict(at, None);
    let remote = draft.link(at)?;
    if let Some(local) = conflict.local
        && !draft.is_reachable(local)?
    {
        let target = if remote.is_some() { draft.free_name(at, own)? } else { at.clone() };
        draft.set_link(&target, Some(local));
    }
    draft.finish()
}

/// Keeps one side of the conflict at a name, and deletes the other.
///
/// # Errors
/// [`PlanError::Cannot`] if there is no conflict, or if a directory would be moved below itself; [`PlanError::Read`].
pub fn resolve(
    trees: &dyn Trees,
    fresh: &mut dyn IdAllocator,
    at: &DentryKey,
    keep: Side,
) -> Result<Changes, PlanError> {
    let Some(conflict) = trees.conflict(at)? else { return Err(PlanError::Cannot("there is no conflict")) };
    let mut draft = StagedTree::new(trees, fresh, conflict.remote_node.clone());
    draft.set_conflict(at, None);
    let remote = draft.link(at)?;
    match (keep, conflict.local) {
        (Side::Remote, Some(local)) => {
            if !draft.is_reachable(local)? {
                match draft.base(local)? {
                    None => draft.drop_tree(local)?,
                    // It was deleted at its location while it was the side of this conflict.
                    Some(_) => draft.clear(local)?,
                }
            }
        }
        (Side::Remote, None) => {}
        (Side::Local, None) => draft.remove(at)?,
        // Both sides have become the same object.
        (Side::Local, Some(local)) if remote == Some(local) => {}
        (Side::Local, Some(local)) => {
            if draft.has_local_name(local)?
                && (conflict.kind == ConflictKind::Moved || draft.is_directory(local)?)
            {
                if draft.is_below(at.parent, local)? {
                    return Err(PlanError::Cannot("a directory would become its own descendant"));
                }
                for old in draft.names(Tree::Local, local)? {
                    draft.set_link(&old, None);
                }
            }
            match remote {
                Some(remote) if draft.are_versions(local, remote, &conflict.origin)? => {
                    draft.replace(remote, local)?;
                }
                Some(remote) => {
                    draft.set_link(at, Some(local));
                    draft.clear(remote)?;
                }
                None => draft.set_link(at, Some(local)),
            }
        }
    }
    draft.finish()
}

/// A step of a removal, on an explicit stack: contents are removed first, at any depth.
enum Task {
    /// Remove a name, and everything that was only below it.
    Remove(DentryKey),
    /// Delete an object with its contents if it has lost its last name.
    Clear(Ino),
    /// Delete an object outside the tree with its contents.
    Drop(Ino),
    /// Remove an entry of an object that is deleted.
    TakeOut(DentryKey, Ino),
    /// Delete the conflicts in an object, and then the object itself.
    Sides(Ino),
    /// Delete the local side of a conflict.
    DropSide(DentryKey),
    /// Delete an object unknown to the store.
    Delete(Ino),
}

impl StagedTree<'_> {
    /// Returns a name next to another one that is unused in both trees and has no conflict.
    fn free_name(&self, at: &DentryKey, own: &NodeName) -> MergeResult<DentryKey> {
        for n in 1..10_000 {
            let candidate = DentryKey { parent: at.parent, name: conflict_copy_name(&at.name, own, n) };
            if self.link(&candidate)?.is_none()
                && self.base_link(&candidate)?.is_none()
                && self.conflict(&candidate)?.is_none()
            {
                return Ok(candidate);
            }
        }
        Err(PlanError::Cannot("too many conflict copies in the directory"))
    }

    /// Removes a name, and everything that was only below it.
    fn remove(&mut self, at: &DentryKey) -> MergeResult {
        self.all_of(Task::Remove(at.clone()))
    }

    /// Deletes an object that lost a name, if it was its last.
    fn clear(&mut self, child: Ino) -> MergeResult {
        self.all_of(Task::Clear(child))
    }

    /// Deletes an object outside the tree with its contents. Objects that the store has return to their locations.
    fn drop_tree(&mut self, num: Ino) -> MergeResult {
        self.all_of(Task::Drop(num))
    }

    fn all_of(&mut self, task: Task) -> MergeResult {
        let mut tasks = vec![task];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Remove(at) => {
                    if let Some(child) = self.link(&at)? {
                        self.set_link(&at, None);
                        tasks.push(Task::Clear(child));
                    }
                }
                Task::Clear(num) if self.has_local_name(num)? => {}
                Task::Clear(num) => {
                    tasks.push(Task::Sides(num));
                    let inside = self.children(Tree::Local, num)?.into_keys().rev();
                    tasks.extend(inside.map(|name| Task::Remove(DentryKey { parent: num, name })));
                }
                Task::Drop(num) if self.base(num)?.is_some() => {}
                Task::Drop(num) => {
                    tasks.push(Task::Sides(num));
                    let inside = self.children(Tree::Local, num)?.into_iter().rev();
                    tasks.extend(
                        inside.map(|(name, child)| Task::TakeOut(DentryKey { parent: num, name }, child)),
                    );
                }
                Task::TakeOut(at, child) => {
                    self.set_link(&at, None);
                    if self.has_local_name(child)? {
                        continue;
                    }
                    if self.base(child)?.is_none() {
                        tasks.push(Task::Drop(child));
                        continue;
                    }
                    for home in self.names(Tree::Base, child)? {
                        self.place_remote(&home, child)?;
                    }
                }
                Task::Sides(num) => {
                    tasks.push(Task::Delete(num));
                    tasks.extend(self.conflicts_in(num)?.into_iter().rev().map(Task::DropSide));
                }
                Task::DropSide(at) => {
                    let local = self.conflict(&at)?.and_then(|conflict| conflict.local);
                    self.set_conflict(&at, None);
                    if let Some(local) = local
                        && !self.is_reachable(local)?
                    {
                        let is_known = self.base(local)?.is_some();
                        tasks.push(if is_known { Task::Clear(local) } else { Task::Drop(local) });
                    }
                }
                Task::Delete(num) if self.base(num)?.is_some() => {}
                Task::Delete(num) => self.delete_unreachable(num)?,
            }
        }
        Ok(())
    }

    fn are_versions(
        &self,
        local: Ino,
        remote: Ino,
        origin: &Option<crate::id::ObjectId>,
    ) -> MergeResult<bool> {
        let (Some(ours), Some(other)) = (self.local(local)?, self.local(remote)?) else { return Ok(false) };
        Ok(ours.kind != Kind::Directory
            && ours.kind == other.kind
            && ours.target == other.target
            && *origin == Some(other.id)
            && self.base(local)?.is_none()
            && self.base(remote)?.is_some())
    }

    /// Makes `local` the new version of the object `remote`, at all its names.
    fn replace(&mut self, remote: Ino, local: Ino) -> MergeResult {
        let (Some(stored), Some(mut object)) = (self.base(remote)?, self.local(local)?) else {
            return Ok(());
        };
        for at in self.names(Tree::Base, remote)? {
            if let Some((_, seq)) = self.base_link(&at)? {
                self.set_base_link(&at, Some((local, seq)))?;
            }
        }
        for at in self.names(Tree::Local, remote)? {
            self.set_link(&at, Some(local));
        }
        for side in self.sides(remote)? {
            if let Some(conflict) = self.conflict(&side)? {
                self.set_conflict(&side, Some(crate::merge::Conflict { local: Some(local), ..conflict }));
            }
        }
        self.delete_unreachable(remote)?;
        self.set_num(object.id, None);
        object.id = stored.object.id;
        self.set_num(object.id, Some(local));
        self.set_local(local, Some(object));
        self.set_base(local, Some(stored))
    }
}
