//! Applies one entry of the log: first to the base, then, unless it is this node's own, to the local tree.
//!
//! Names that the store lost are removed before new ones are placed, then deletions are merged, and fields last. The result are
//! staged changes of both trees and of conflicts.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{NodeName, ObjectId};
use crate::merge::cycle::{CycleDetector, cycle_error};
use crate::merge::deletions::RemovedObject;
use crate::merge::staged_tree::{Changes, IdAllocator, MergeResult, StagedTree};
use crate::merge::{ConflictKind, DentryKey, Ino, PlanError, ROOT, Tree, Trees};
use crate::object::{Field, LinkName, VersionedObject};
use crate::store::{LogEntry, Mutation};

/// The state of everything that an entry touches, before it.
#[derive(Default)]
pub(super) struct Touched {
    pub(super) objects: BTreeMap<Ino, VersionedObject>,
    pub(super) links: BTreeMap<DentryKey, Option<Ino>>,
    /// The names of the objects in `links`, local and in the base.
    pub(super) children: BTreeMap<Ino, (BTreeSet<DentryKey>, BTreeSet<DentryKey>)>,
}

/// Returns the changes of both trees by a log entry. An entry of this node (`own`) only advances the base: local changes since
/// then are still to be pushed.
///
/// # Errors
/// [`PlanError::Log`] if the entry does not follow from the base; [`PlanError::Read`].
pub fn apply_entry(
    trees: &dyn Trees,
    fresh: &mut dyn IdAllocator,
    entry: &LogEntry,
    own: bool,
) -> Result<Changes, PlanError> {
    let mut draft = StagedTree::new(trees, fresh, entry.node.clone());
    match own {
        true => drop(follow_own(&mut draft, entry)?),
        false => {
            let touched = advance_base(&mut draft, entry)?;
            merge_remote(&mut draft, &touched)?;
        }
    }
    draft.finish()
}

/// Initialises the base with the root directory, which existed before the log began. Local changes of it are still to be
/// pushed.
///
/// # Errors
/// [`PlanError::Read`].
pub fn begin(
    trees: &dyn Trees,
    fresh: &mut dyn IdAllocator,
    stored: &VersionedObject,
) -> Result<Changes, PlanError> {
    let mut draft = StagedTree::new(trees, fresh, NodeName::store());
    let before = draft.base(ROOT)?;
    draft.set_base(ROOT, Some(stored.clone()))?;
    match before {
        Some(before) => draft.follow_fields(ROOT, &before)?,
        None => draft.set_local(ROOT, Some(stored.object.clone())),
    }
    draft.finish()
}

/// Applies a commit of this node: advances the base only. Returns the objects that it removed from the base.
pub(super) fn follow_own(draft: &mut StagedTree<'_>, entry: &LogEntry) -> MergeResult<BTreeSet<Ino>> {
    let touched = advance_base(draft, entry)?;
    let gone: BTreeSet<Ino> = bury(draft, &touched)?.into_keys().collect();
    for &num in &gone {
        if draft.is_reachable(num)? { draft.assign_new_id(num)? } else { draft.delete_unreachable(num)? }
    }
    Ok(gone)
}

/// Removes objects without names from the base, and returns them.
fn bury(draft: &mut StagedTree<'_>, touched: &Touched) -> MergeResult<BTreeMap<Ino, RemovedObject>> {
    let mut gone = BTreeMap::new();
    for &num in touched.children.keys() {
        if num != ROOT && draft.names(Tree::Base, num)?.is_empty() {
            let before = match touched.objects.get(&num) {
                Some(before) => Some(before.clone()),
                None => draft.base(num)?,
            };
            draft.set_base(num, None)?;
            if let Some(before) = before {
                gone.insert(num, RemovedObject { before, lost_names: Vec::new() });
            }
        }
    }
    Ok(gone)
}

/// Merges changes of other nodes, with which the base has been advanced already, into the local tree.
pub(super) fn merge_remote(draft: &mut StagedTree<'_>, touched: &Touched) -> MergeResult {
    let mut gone = bury(draft, touched)?;
    draft.deletion_candidates = gone.keys().map(|num| (*num, Vec::new())).collect();
    let deleted_here: BTreeSet<Ino> = touched
        .children
        .iter()
        .filter(|(num, (here, base))| **num != ROOT && here.is_empty() && !base.is_empty())
        .map(|(num, _)| *num)
        .collect();
    let lost = lose_names(draft, touched, &mut gone)?;
    draft.set_detached_dirs(lost.iter().map(|num| (*num, None)).collect());
    gain_names(draft, touched, &deleted_here)?;
    for num in lost {
        // Each side removed the names that the other kept: no side intended to delete the object.
        if !gone.contains_key(&num) && !draft.is_reachable(num)? {
            draft.revive_changed(num)?;
        }
    }
    draft.merge_deletions(gone)?;
    for (num, before) in &touched.objects {
        if !draft.made.contains(num) && draft.base(*num)?.is_some() {
            draft.follow_fields(*num, before)?;
        }
    }
    tidy(draft, touched)?;
    draft.keep_both_versions()
}

/// Applies the entry to the base.
fn advance_base(draft: &mut StagedTree<'_>, entry: &LogEntry) -> MergeResult<Touched> {
    let mut touched = Touched::default();
    for change in &entry.change {
        match change {
            Mutation::Make(object) => {
                let stored = VersionedObject {
                    object: object.clone(),
                    created: entry.seq,
                    field_versions: BTreeMap::new(),
                    links: 0,
                };
                let num = match draft.num(object.id)? {
                    Some(num) => num,
                    None => {
                        let num = draft.new_num();
                        draft.set_num(object.id, Some(num));
                        draft.set_local(num, Some(object.clone()));
                        draft.made.insert(num);
                        touched.children.entry(num).or_default();
                        num
                    }
                };
                draft.set_base(num, Some(stored))?;
            }
            Mutation::Link(at, child) => {
                let (at, child) = (resolve_link(draft, at)?, resolve_id(draft, *child)?);
                touch_link(draft, &mut touched, &at, Some(child))?;
                draft.set_base_link(&at, Some((child, entry.seq)))?;
            }
            Mutation::Unlink(at) => {
                let at = resolve_link(draft, at)?;
                let child = draft.base_link(&at)?.map(|(child, _)| child);
                touch_link(draft, &mut touched, &at, child)?;
                draft.set_base_link(&at, None)?;
            }
            Mutation::SetContent(id, content, modified) => {
                set(draft, &mut touched, entry, *id, &[Field::Content, Field::Modified], |stored| {
                    stored.object.content = content.clone();
                    stored.object.modified = *modified;
                })?;
            }
            Mutation::SetMode(id, mode) => {
                set(draft, &mut touched, entry, *id, &[Field::Mode], |stored| stored.object.mode = *mode)?;
            }
            Mutation::SetOwner(id, owner) => {
                set(draft, &mut touched, entry, *id, &[Field::Owner], |stored| stored.object.owner = *owner)?;
            }
            Mutation::SetGroup(id, group) => {
                set(draft, &mut touched, entry, *id, &[Field::Group], |stored| stored.object.group = *group)?;
            }
            Mutation::SetModified(id, modified) => {
                set(draft, &mut touched, entry, *id, &[Field::Modified], |stored| {
                    stored.object.modified = *modified;
                })?;
            }
            Mutation::SetXattr(id, name, value) => {
                set(draft, &mut touched, entry, *id, &[Field::Xattr(name.clone())], |stored| {
                    match value {
                        Some(value) => stored.object.xattrs.insert(name.clone(), value.clone()),
                        None => stored.object.xattrs.remove(name),
                    };
                })?;
            }
            Mutation::Seal(_) => {}
        }
    }
    Ok(touched)
}

fn resolve_id(draft: &StagedTree<'_>, id: ObjectId) -> MergeResult<Ino> {
    draft.num(id)?.ok_or_else(|| PlanError::Log(format!("object {id} does not exist")))
}

fn resolve_link(draft: &StagedTree<'_>, at: &LinkName) -> MergeResult<DentryKey> {
    Ok(DentryKey { parent: resolve_id(draft, at.parent)?, name: at.name.clone() })
}

pub(super) fn touch_link(
    draft: &StagedTree<'_>,
    touched: &mut Touched,
    at: &DentryKey,
    child: Option<Ino>,
) -> MergeResult {
    let before = draft.base_link(at)?.map(|(child, _)| child);
    touched.links.entry(at.clone()).or_insert(before);
    if let Some(child) = child
        && !touched.children.contains_key(&child)
    {
        let here = draft.names(Tree::Local, child)?.into_iter().collect();
        let base = draft.names(Tree::Base, child)?.into_iter().collect();
        touched.children.insert(child, (here, base));
    }
    Ok(())
}

fn set(
    draft: &mut StagedTree<'_>,
    touched: &mut Touched,
    entry: &LogEntry,
    id: ObjectId,
    fields: &[Field],
    change: impl FnOnce(&mut VersionedObject),
) -> MergeResult {
    let num = resolve_id(draft, id)?;
    let Some(mut stored) = draft.base(num)? else {
        return Err(PlanError::Log(format!("object {id} was never in the store")));
    };
    touched.objects.entry(num).or_insert_with(|| stored.clone());
    change(&mut stored);
    stored.field_versions.extend(fields.iter().map(|field| (field.clone(), entry.seq)));
    let new = draft.made.contains(&num).then(|| stored.object.clone());
    draft.set_base(num, Some(stored))?;
    if new.is_some() {
        draft.set_local(num, new);
    }
    Ok(())
}

/// Removes local names that the store removed or reassigned and that agreed with the base. Returns the objects that had them.
fn lose_names(
    draft: &mut StagedTree<'_>,
    touched: &Touched,
    gone: &mut BTreeMap<Ino, RemovedObject>,
) -> MergeResult<BTreeSet<Ino>> {
    let mut lost = BTreeSet::new();
    for (at, before) in &touched.links {
        let now = draft.base_link(at)?.map(|(child, _)| child);
        let Some(here) = draft.link(at)?.filter(|here| now != Some(*here)) else { continue };
        // Also a name that this node had set and others removed since: see `record_freed_names`.
        let was_agreed =
            *before == Some(here) || touched.children.get(&here).is_some_and(|(_, base)| base.contains(at));
        if was_agreed {
            draft.set_link(at, None);
            lost.insert(here);
            if let Some(gone) = gone.get_mut(&here) {
                gone.lost_names.push(at.clone());
            }
        }
    }
    Ok(lost)
}

/// Adds names that are new in the store; those of directories before those in them.
fn gain_names(draft: &mut StagedTree<'_>, touched: &Touched, deleted_here: &BTreeSet<Ino>) -> MergeResult {
    let mut gained = Vec::new();
    for (at, before) in &touched.links {
        // If this node had set the name, it is older than the changes of others: see `record_freed_names`.
        let was_there = |child| touched.children.get(&child).is_some_and(|(_, base)| base.contains(at));
        if let Some((child, _)) = draft.base_link(at)?
            && Some(child) != *before
            && !was_there(child)
        {
            gained.push((0, at.clone(), child));
        }
    }
    // A single name of a new object needs no ordering.
    let is_one = matches!(&gained[..], [(_, at, child)] if draft.made.contains(child) && at.parent != *child);
    if !is_one {
        let mut known = BTreeMap::from([(ROOT, 0)]);
        for (deep, at, _) in &mut gained {
            *deep = depth(draft, at.parent, &mut known)?;
        }
        gained.sort();
    }
    for (_, at, _) in gained {
        let at = draft.current_key(&at);
        let Some((child, _)) = draft.base_link(&at)? else { continue };
        if draft.link(&at)? == Some(child) {
            continue;
        }
        if let Some((here, base)) = touched.children.get(&child) {
            take_back_move(draft, child, here, base)?;
        }
        let in_the_way = draft.link(&at)?.is_some();
        let fell_with_directory = !draft.has_local_name(at.parent)?;
        draft.place_remote(&at, child)?;
        if deleted_here.contains(&child) && !in_the_way && !fell_with_directory {
            draft.record_conflict(&at, ConflictKind::DeletedChanged, None, None)?;
        }
    }
    Ok(())
}

/// Undoes a local move of an object that the store moved as well. Also removes the name of a directory created locally if it
/// is unknown whether the store has it: the record may have been lost in a crash.
fn take_back_move(
    draft: &mut StagedTree<'_>,
    child: Ino,
    here: &BTreeSet<DentryKey>,
    base: &BTreeSet<DentryKey>,
) -> MergeResult {
    let moved_here = base.difference(here).next().is_some() && here.difference(base).next().is_some();
    let made_here = base.is_empty() && draft.is_directory(child)?;
    if !moved_here && !made_here {
        return Ok(());
    }
    let now: BTreeSet<DentryKey> = draft.names(Tree::Base, child)?.into_iter().collect();
    let moved_there = base.difference(&now).next().is_some();
    if !moved_there && !made_here {
        return Ok(());
    }
    for at in draft.names(Tree::Local, child)? {
        if !now.contains(&at) && !base.contains(&at) {
            draft.set_link(&at, None);
            draft.record_conflict(&at, ConflictKind::Moved, Some(child), None)?;
            draft.refill(&at)?;
        }
    }
    Ok(())
}

/// Returns the depth of a directory; `known` caches the depths of ancestors.
fn depth(draft: &StagedTree<'_>, mut num: Ino, known: &mut BTreeMap<Ino, usize>) -> MergeResult<usize> {
    let (mut passed, mut way) = (Vec::new(), CycleDetector::default());
    let mut depth = loop {
        if let Some(depth) = known.get(&num) {
            break *depth;
        }
        let Some(at) = draft.names(Tree::Base, num)?.into_iter().next() else {
            known.insert(num, 0);
            break 0;
        };
        passed.push(num);
        num = at.parent;
        if way.closes_cycle(num) {
            return Err(cycle_error());
        }
    };
    for num in passed.into_iter().rev() {
        depth += 1;
        known.insert(num, depth);
    }
    Ok(depth)
}

/// Removes conflicts whose sides have become equal.
fn tidy(draft: &mut StagedTree<'_>, touched: &Touched) -> MergeResult {
    for at in touched.links.keys() {
        let at = draft.current_key(at);
        if let Some(conflict) = draft.conflict(&at)?
            && conflict.mine == draft.link(&at)?
        {
            draft.set_conflict(&at, None);
        }
    }
    Ok(())
}
