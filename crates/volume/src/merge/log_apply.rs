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
pub(super) struct Affected {
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
    let mut staged = StagedTree::new(trees, fresh, entry.node.clone());
    match own {
        true => drop(apply_own_entry(&mut staged, entry)?),
        false => {
            let affected = advance_base(&mut staged, entry)?;
            merge_remote(&mut staged, &affected)?;
        }
    }
    staged.finish()
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
    let mut staged = StagedTree::new(trees, fresh, NodeName::store());
    let before = staged.base(ROOT)?;
    staged.set_base(ROOT, Some(stored.clone()))?;
    match before {
        Some(before) => staged.follow_fields(ROOT, &before)?,
        None => staged.set_local(ROOT, Some(stored.object.clone())),
    }
    staged.finish()
}

/// Applies a commit of this node: advances the base only. Returns the objects that it removed from the base.
pub(super) fn apply_own_entry(staged: &mut StagedTree<'_>, entry: &LogEntry) -> MergeResult<BTreeSet<Ino>> {
    let affected = advance_base(staged, entry)?;
    let removed: BTreeSet<Ino> = remove_unlinked(staged, &affected)?.into_keys().collect();
    for &num in &removed {
        if staged.is_reachable(num)? { staged.assign_new_id(num)? } else { staged.delete_unreachable(num)? }
    }
    Ok(removed)
}

/// Removes objects without names from the base, and returns them.
fn remove_unlinked(
    staged: &mut StagedTree<'_>,
    affected: &Affected,
) -> MergeResult<BTreeMap<Ino, RemovedObject>> {
    let mut removed = BTreeMap::new();
    for &num in affected.children.keys() {
        if num != ROOT && staged.names(Tree::Base, num)?.is_empty() {
            let before = match affected.objects.get(&num) {
                Some(before) => Some(before.clone()),
                None => staged.base(num)?,
            };
            staged.set_base(num, None)?;
            if let Some(before) = before {
                removed.insert(num, RemovedObject { before, lost_names: Vec::new() });
            }
        }
    }
    Ok(removed)
}

/// Merges changes of other nodes, with which the base has been advanced already, into the local tree.
pub(super) fn merge_remote(staged: &mut StagedTree<'_>, affected: &Affected) -> MergeResult {
    let mut removed = remove_unlinked(staged, affected)?;
    staged.deletion_candidates = removed.keys().map(|num| (*num, Vec::new())).collect();
    let deleted_here: BTreeSet<Ino> = affected
        .children
        .iter()
        .filter(|(num, (here, base))| **num != ROOT && here.is_empty() && !base.is_empty())
        .map(|(num, _)| *num)
        .collect();
    let lost = remove_lost_names(staged, affected, &mut removed)?;
    staged.set_detached_dirs(lost.iter().map(|num| (*num, None)).collect());
    place_new_names(staged, affected, &deleted_here)?;
    for num in lost {
        // Each side removed the names that the other kept: no side intended to delete the object.
        if !removed.contains_key(&num) && !staged.is_reachable(num)? {
            staged.revive_changed(num)?;
        }
    }
    staged.merge_deletions(removed)?;
    for (num, before) in &affected.objects {
        if !staged.created.contains(num) && staged.base(*num)?.is_some() {
            staged.follow_fields(*num, before)?;
        }
    }
    drop_equal_conflicts(staged, affected)?;
    staged.keep_both_versions()
}

/// Applies the entry to the base.
fn advance_base(staged: &mut StagedTree<'_>, entry: &LogEntry) -> MergeResult<Affected> {
    let mut affected = Affected::default();
    for change in &entry.change {
        match change {
            Mutation::Make(object) => {
                let stored = VersionedObject {
                    object: object.clone(),
                    created: entry.seq,
                    field_versions: BTreeMap::new(),
                    links: 0,
                };
                let num = match staged.num(object.id)? {
                    Some(num) => num,
                    None => {
                        let num = staged.new_num();
                        staged.set_num(object.id, Some(num));
                        staged.set_local(num, Some(object.clone()));
                        staged.created.insert(num);
                        affected.children.entry(num).or_default();
                        num
                    }
                };
                staged.set_base(num, Some(stored))?;
            }
            Mutation::Link(at, child) => {
                let (at, child) = (resolve_link(staged, at)?, resolve_id(staged, *child)?);
                touch_link(staged, &mut affected, &at, Some(child))?;
                staged.set_base_link(&at, Some((child, entry.seq)))?;
            }
            Mutation::Unlink(at) => {
                let at = resolve_link(staged, at)?;
                let child = staged.base_link(&at)?.map(|(child, _)| child);
                touch_link(staged, &mut affected, &at, child)?;
                staged.set_base_link(&at, None)?;
            }
            Mutation::SetContent(id, content, modified) => {
                set(staged, &mut affected, entry, *id, &[Field::Content, Field::Modified], |stored| {
                    stored.object.content = content.clone();
                    stored.object.modified = *modified;
                })?;
            }
            Mutation::SetMode(id, mode) => {
                set(staged, &mut affected, entry, *id, &[Field::Mode], |stored| stored.object.mode = *mode)?;
            }
            Mutation::SetOwner(id, owner) => {
                set(staged, &mut affected, entry, *id, &[Field::Owner], |stored| {
                    stored.object.owner = *owner
                })?;
            }
            Mutation::SetGroup(id, group) => {
                set(staged, &mut affected, entry, *id, &[Field::Group], |stored| {
                    stored.object.group = *group
                })?;
            }
            Mutation::SetModified(id, modified) => {
                set(staged, &mut affected, entry, *id, &[Field::Modified], |stored| {
                    stored.object.modified = *modified;
                })?;
            }
            Mutation::SetXattr(id, name, value) => {
                set(staged, &mut affected, entry, *id, &[Field::Xattr(name.clone())], |stored| {
                    match value {
                        Some(value) => stored.object.xattrs.insert(name.clone(), value.clone()),
                        None => stored.object.xattrs.remove(name),
                    };
                })?;
            }
            Mutation::Seal(_) => {}
        }
    }
    Ok(affected)
}

fn resolve_id(staged: &StagedTree<'_>, id: ObjectId) -> MergeResult<Ino> {
    staged.num(id)?.ok_or_else(|| PlanError::Log(format!("object {id} does not exist")))
}

fn resolve_link(staged: &StagedTree<'_>, at: &LinkName) -> MergeResult<DentryKey> {
    Ok(DentryKey { parent: resolve_id(staged, at.parent)?, name: at.name.clone() })
}

pub(super) fn touch_link(
    staged: &StagedTree<'_>,
    affected: &mut Affected,
    at: &DentryKey,
    child: Option<Ino>,
) -> MergeResult {
    let before = staged.base_link(at)?.map(|(child, _)| child);
    affected.links.entry(at.clone()).or_insert(before);
    if let Some(child) = child
        && !affected.children.contains_key(&child)
    {
        let here = staged.names(Tree::Local, child)?.into_iter().collect();
        let base = staged.names(Tree::Base, child)?.into_iter().collect();
        affected.children.insert(child, (here, base));
    }
    Ok(())
}

fn set(
    staged: &mut StagedTree<'_>,
    affected: &mut Affected,
    entry: &LogEntry,
    id: ObjectId,
    fields: &[Field],
    change: impl FnOnce(&mut VersionedObject),
) -> MergeResult {
    let num = resolve_id(staged, id)?;
    let Some(mut stored) = staged.base(num)? else {
        return Err(PlanError::Log(format!("object {id} was never in the store")));
    };
    affected.objects.entry(num).or_insert_with(|| stored.clone());
    change(&mut stored);
    stored.field_versions.extend(fields.iter().map(|field| (field.clone(), entry.seq)));
    let new = staged.created.contains(&num).then(|| stored.object.clone());
    staged.set_base(num, Some(stored))?;
    if new.is_some() {
        staged.set_local(num, new);
    }
    Ok(())
}

/// Removes local names that the store removed or reassigned and that agreed with the base. Returns the objects that had them.
fn remove_lost_names(
    staged: &mut StagedTree<'_>,
    affected: &Affected,
    removed: &mut BTreeMap<Ino, RemovedObject>,
) -> MergeResult<BTreeSet<Ino>> {
    let mut lost = BTreeSet::new();
    for (at, before) in &affected.links {
        let now = staged.base_link(at)?.map(|(child, _)| child);
        let Some(here) = staged.link(at)?.filter(|here| now != Some(*here)) else { continue };
        // Also a name that this node had set and others removed since: see `record_freed_names`.
        let was_agreed =
            *before == Some(here) || affected.children.get(&here).is_some_and(|(_, base)| base.contains(at));
        if was_agreed {
            staged.set_link(at, None);
            lost.insert(here);
            if let Some(removed) = removed.get_mut(&here) {
                removed.lost_names.push(at.clone());
            }
        }
    }
    Ok(lost)
}

/// Adds names that are new in the store; those of directories before those in them.
fn place_new_names(
    staged: &mut StagedTree<'_>,
    affected: &Affected,
    deleted_here: &BTreeSet<Ino>,
) -> MergeResult {
    let mut gained = Vec::new();
    for (at, before) in &affected.links {
        // If this node had set the name, it is older than the changes of others: see `record_freed_names`.
        let was_there = |child| affected.children.get(&child).is_some_and(|(_, base)| base.contains(at));
        if let Some((child, _)) = staged.base_link(at)?
            && Some(child) != *before
            && !was_there(child)
        {
            gained.push((0, at.clone(), child));
        }
    }
    // A single name of a new object needs no ordering.
    let is_one =
        matches!(&gained[..], [(_, at, child)] if staged.created.contains(child) && at.parent != *child);
    if !is_one {
        let mut known = BTreeMap::from([(ROOT, 0)]);
        for (deep, at, _) in &mut gained {
            *deep = depth(staged, at.parent, &mut known)?;
        }
        gained.sort();
    }
    for (_, at, _) in gained {
        let at = staged.current_key(&at);
        let Some((child, _)) = staged.base_link(&at)? else { continue };
        if staged.link(&at)? == Some(child) {
            continue;
        }
        if let Some((here, base)) = affected.children.get(&child) {
            undo_local_move(staged, child, here, base)?;
        }
        let in_the_way = staged.link(&at)?.is_some();
        let fell_with_directory = !staged.has_local_name(at.parent)?;
        staged.place_remote(&at, child)?;
        if deleted_here.contains(&child) && !in_the_way && !fell_with_directory {
            staged.record_conflict(&at, ConflictKind::DeletedChanged, None, None)?;
        }
    }
    Ok(())
}

/// Undoes a local move of an object that the store moved as well. Also removes the name of a directory created locally if it
/// is unknown whether the store has it: the record may have been lost in a crash.
fn undo_local_move(
    staged: &mut StagedTree<'_>,
    child: Ino,
    here: &BTreeSet<DentryKey>,
    base: &BTreeSet<DentryKey>,
) -> MergeResult {
    let moved_here = base.difference(here).next().is_some() && here.difference(base).next().is_some();
    let made_here = base.is_empty() && staged.is_directory(child)?;
    if !moved_here && !made_here {
        return Ok(());
    }
    let now: BTreeSet<DentryKey> = staged.names(Tree::Base, child)?.into_iter().collect();
    let moved_there = base.difference(&now).next().is_some();
    if !moved_there && !made_here {
        return Ok(());
    }
    for at in staged.names(Tree::Local, child)? {
        if !now.contains(&at) && !base.contains(&at) {
            staged.set_link(&at, None);
            staged.record_conflict(&at, ConflictKind::Moved, Some(child), None)?;
            staged.restore_remote_name(&at)?;
        }
    }
    Ok(())
}

/// Returns the depth of a directory; `known` caches the depths of ancestors.
fn depth(staged: &StagedTree<'_>, mut num: Ino, known: &mut BTreeMap<Ino, usize>) -> MergeResult<usize> {
    let (mut passed, mut way) = (Vec::new(), CycleDetector::default());
    let mut depth = loop {
        if let Some(depth) = known.get(&num) {
            break *depth;
        }
        let Some(at) = staged.names(Tree::Base, num)?.into_iter().next() else {
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
fn drop_equal_conflicts(staged: &mut StagedTree<'_>, affected: &Affected) -> MergeResult {
    for at in affected.links.keys() {
        let at = staged.current_key(at);
        if let Some(conflict) = staged.conflict(&at)?
            && conflict.local == staged.link(&at)?
        {
            staged.set_conflict(&at, None);
        }
    }
    Ok(())
}
