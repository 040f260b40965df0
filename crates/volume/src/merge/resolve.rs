//! One side of a conflict is chosen.

use crate::id::NodeName;
use crate::merge::staged_tree::{Changes, IdAllocator, MergeResult, StagedTree};
use crate::merge::{ConflictKind, DentryKey, Ino, PlanError, Tree, Trees};
use crate::object::Kind;
use crate::store::validate::NAME_MAX;

/// A side of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// This node's.
    Mine,
    /// The store's.
    Theirs,
}

/// What this node's version of a name is called beside another one: the name, `.conflict-`, the node; from the second on
/// with `~` and a number. What is too long loses its end.
pub fn beside(name: &[u8], node: &NodeName, n: u32) -> Vec<u8> {
    let tail = match n {
        0 | 1 => format!(".conflict-{node}"),
        n => format!(".conflict-{node}~{n}"),
    };
    let kept = name.len().min(NAME_MAX.saturating_sub(tail.len()));
    [&name[..kept], tail.as_bytes()].concat()
}

/// Keeps both sides of the conflict at a name: the store's there, and this node's, which is called `own`, [beside](beside())
/// it. One that is gone, or is somewhere else in the tree already, gets no name beside.
///
/// # Errors
/// [`PlanError::Cannot`] if there is no conflict; those of reading.
pub fn keep_both(
    trees: &dyn Trees,
    fresh: &mut dyn IdAllocator,
    at: &DentryKey,
    own: &NodeName,
) -> Result<Changes, PlanError> {
    let Some(conflict) = trees.conflict(at)? else { return Err(PlanError::Cannot("there is no conflict")) };
    let mut draft = StagedTree::new(trees, fresh, conflict.theirs.clone());
    draft.set_conflict(at, None);
    let theirs = draft.link(at)?;
    if let Some(mine) = conflict.mine
        && !draft.is_wanted(mine)?
    {
        let place = if theirs.is_some() { draft.free_name(at, own)? } else { at.clone() };
        draft.set_link(&place, Some(mine));
    }
    draft.finish()
}

/// Keeps one side of the conflict at a name; the other is deleted.
///
/// # Errors
/// [`PlanError::Cannot`] if there is no conflict, or if a directory would be moved below itself; those of reading.
pub fn resolve(
    trees: &dyn Trees,
    fresh: &mut dyn IdAllocator,
    at: &DentryKey,
    keep: Side,
) -> Result<Changes, PlanError> {
    let Some(conflict) = trees.conflict(at)? else { return Err(PlanError::Cannot("there is no conflict")) };
    let mut draft = StagedTree::new(trees, fresh, conflict.theirs.clone());
    draft.set_conflict(at, None);
    let theirs = draft.link(at)?;
    match (keep, conflict.mine) {
        (Side::Theirs, Some(mine)) => {
            if !draft.is_wanted(mine)? {
                match draft.base(mine)? {
                    None => draft.drop_tree(mine)?,
                    // It was deleted at its place while it was a side here.
                    Some(_) => draft.clear(mine)?,
                }
            }
        }
        (Side::Theirs, None) => {}
        (Side::Mine, None) => draft.remove(at)?,
        // Both came to be the same meanwhile.
        (Side::Mine, Some(mine)) if theirs == Some(mine) => {}
        (Side::Mine, Some(mine)) => {
            if draft.is_alive(mine)? && (conflict.kind == ConflictKind::Moved || draft.is_directory(mine)?) {
                if draft.is_below(at.parent, mine)? {
                    return Err(PlanError::Cannot("a directory would be below itself"));
                }
                for old in draft.names(Tree::Local, mine)? {
                    draft.set_link(&old, None);
                }
            }
            match theirs {
                Some(theirs) if draft.are_versions(mine, theirs, &conflict.origin)? => {
                    draft.replace(theirs, mine)?;
                }
                Some(theirs) => {
                    draft.set_link(at, Some(mine));
                    draft.clear(theirs)?;
                }
                None => draft.set_link(at, Some(mine)),
            }
        }
    }
    draft.finish()
}

/// What is still to be done for what goes. What is in it goes first, however much that is.
enum Task {
    /// A name, and all that was only below it.
    Remove(DentryKey),
    /// An object that lost a name, with what is in it if that was its last.
    Clear(Ino),
    /// An object beside the tree, with what is in it.
    Drop(Ino),
    /// What was in an object that is dropped.
    TakeOut(DentryKey, Ino),
    /// Conflicts in an object, and then the object itself.
    Sides(Ino),
    /// This node's side of a conflict.
    DropSide(DentryKey),
    /// An object that the store does not have.
    Forget(Ino),
}

impl StagedTree<'_> {
    /// A name beside another that nothing has or had.
    fn free_name(&self, at: &DentryKey, own: &NodeName) -> MergeResult<DentryKey> {
        for n in 1..10_000 {
            let place = DentryKey { parent: at.parent, name: beside(&at.name, own, n) };
            if self.link(&place)?.is_none()
                && self.base_link(&place)?.is_none()
                && self.conflict(&place)?.is_none()
            {
                return Ok(place);
            }
        }
        Err(PlanError::Cannot("there are too many versions beside it"))
    }

    /// A name, and all that was only below it.
    fn remove(&mut self, at: &DentryKey) -> MergeResult {
        self.all_of(Task::Remove(at.clone()))
    }

    /// An object that lost a name, perhaps its last.
    fn clear(&mut self, child: Ino) -> MergeResult {
        self.all_of(Task::Clear(child))
    }

    /// An object beside the tree with all that is in it. What the store has is not deleted there by that.
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
                Task::Clear(num) if self.is_alive(num)? => {}
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
                    if self.is_alive(child)? {
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
                    tasks.push(Task::Forget(num));
                    tasks.extend(self.conflicts_in(num)?.into_iter().rev().map(Task::DropSide));
                }
                Task::DropSide(at) => {
                    let mine = self.conflict(&at)?.and_then(|conflict| conflict.mine);
                    self.set_conflict(&at, None);
                    if let Some(mine) = mine
                        && !self.is_wanted(mine)?
                    {
                        let is_known = self.base(mine)?.is_some();
                        tasks.push(if is_known { Task::Clear(mine) } else { Task::Drop(mine) });
                    }
                }
                Task::Forget(num) if self.base(num)?.is_some() => {}
                Task::Forget(num) => self.forget(num)?,
            }
        }
        Ok(())
    }

    fn are_versions(
        &self,
        mine: Ino,
        theirs: Ino,
        origin: &Option<crate::id::ObjectId>,
    ) -> MergeResult<bool> {
        let (Some(ours), Some(other)) = (self.local(mine)?, self.local(theirs)?) else { return Ok(false) };
        Ok(ours.kind != Kind::Directory
            && ours.kind == other.kind
            && ours.target == other.target
            && *origin == Some(other.id)
            && self.base(mine)?.is_none()
            && self.base(theirs)?.is_some())
    }

    /// `mine` is what the object `theirs` becomes, at all its names.
    fn replace(&mut self, theirs: Ino, mine: Ino) -> MergeResult {
        let (Some(stored), Some(mut object)) = (self.base(theirs)?, self.local(mine)?) else { return Ok(()) };
        for at in self.names(Tree::Base, theirs)? {
            if let Some((_, seq)) = self.base_link(&at)? {
                self.set_base_link(&at, Some((mine, seq)))?;
            }
        }
        for at in self.names(Tree::Local, theirs)? {
            self.set_link(&at, Some(mine));
        }
        for side in self.sides(theirs)? {
            if let Some(conflict) = self.conflict(&side)? {
                self.set_conflict(&side, Some(crate::merge::Conflict { mine: Some(mine), ..conflict }));
            }
        }
        self.forget(theirs)?;
        self.set_num(object.id, None);
        object.id = stored.object.id;
        self.set_num(object.id, Some(mine));
        self.set_local(mine, Some(object));
        self.set_base(mine, Some(stored))
    }
}
