//! One entry of the log comes in.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{NodeName, ObjectId};
use crate::object::{Field, LinkName, Stored};
use crate::plan::draft::{Changes, Draft, Fresh, Planning};
use crate::plan::gone::Gone;
use crate::plan::way::{Way, circle};
use crate::plan::{At, ConflictKind, Num, PlanError, ROOT, Tree, Trees};
use crate::store::{Entry, Mutation};

/// What an entry touches, as it was before.
#[derive(Default)]
pub(super) struct Touched {
    pub(super) objects: BTreeMap<Num, Stored>,
    pub(super) links: BTreeMap<At, Option<Num>>,
    /// Where the objects of `links` were, here and as agreed on.
    pub(super) children: BTreeMap<Num, (BTreeSet<At>, BTreeSet<At>)>,
}

/// What the trees are after an entry of the log. One of this node's own (`own`) says only what both now agree on: what
/// was changed here since is still to be told.
///
/// # Errors
/// [`PlanError::Log`] if the entry does not follow from the base; those of reading.
pub fn follow(
    trees: &dyn Trees,
    fresh: &mut dyn Fresh,
    entry: &Entry,
    own: bool,
) -> Result<Changes, PlanError> {
    let mut draft = Draft::new(trees, fresh, entry.node.clone());
    match own {
        true => drop(follow_own(&mut draft, entry)?),
        false => {
            let touched = agree(&mut draft, entry)?;
            come_in(&mut draft, &touched)?;
        }
    }
    draft.finish()
}

/// What the trees are once the top directory, which was there before the log began, is agreed on as the store has it now. What
/// was changed of it here stays to be told.
///
/// # Errors
/// Those of reading.
pub fn begin(trees: &dyn Trees, fresh: &mut dyn Fresh, stored: &Stored) -> Result<Changes, PlanError> {
    let mut draft = Draft::new(trees, fresh, NodeName::store());
    let before = draft.base(ROOT)?;
    draft.set_base(ROOT, Some(stored.clone()))?;
    match before {
        Some(before) => draft.follow_fields(ROOT, &before)?,
        None => draft.set_local(ROOT, Some(stored.object.clone())),
    }
    draft.finish()
}

/// What this node did: it is agreed on now, and what it did since is still to be told. What is not in the base any more.
pub(super) fn follow_own(draft: &mut Draft<'_>, entry: &Entry) -> Planning<BTreeSet<Num>> {
    let touched = agree(draft, entry)?;
    let gone: BTreeSet<Num> = bury(draft, &touched)?.into_keys().collect();
    for &num in &gone {
        if draft.is_wanted(num)? { draft.rekey(num)? } else { draft.forget(num)? }
    }
    Ok(gone)
}

/// Objects that have no name in the base now are not in it any more.
fn bury(draft: &mut Draft<'_>, touched: &Touched) -> Planning<BTreeMap<Num, Gone>> {
    let mut gone = BTreeMap::new();
    for &num in touched.children.keys() {
        if num != ROOT && draft.names(Tree::Base, num)?.is_empty() {
            let before = match touched.objects.get(&num) {
                Some(before) => Some(before.clone()),
                None => draft.base(num)?,
            };
            draft.set_base(num, None)?;
            if let Some(before) = before {
                gone.insert(num, Gone { before, lost: Vec::new() });
            }
        }
    }
    Ok(gone)
}

/// What others did, and what is in the base by now, comes into the local tree.
pub(super) fn come_in(draft: &mut Draft<'_>, touched: &Touched) -> Planning {
    let mut gone = bury(draft, touched)?;
    draft.doomed = gone.keys().map(|num| (*num, Vec::new())).collect();
    let deleted_here: BTreeSet<Num> = touched
        .children
        .iter()
        .filter(|(num, (here, base))| **num != ROOT && here.is_empty() && !base.is_empty())
        .map(|(num, _)| *num)
        .collect();
    let lost = lose_names(draft, touched, &mut gone)?;
    draft.set_fallen(lost.iter().map(|num| (*num, None)).collect());
    gain_names(draft, touched, &deleted_here)?;
    for num in lost {
        // Each side took away the names that the other left: nobody meant to delete it.
        if !gone.contains_key(&num) && !draft.is_wanted(num)? {
            draft.revive_changed(num)?;
        }
    }
    draft.follow_gone(gone)?;
    for (num, before) in &touched.objects {
        if !draft.made.contains(num) && draft.base(*num)?.is_some() {
            draft.follow_fields(*num, before)?;
        }
    }
    tidy(draft, touched)?;
    draft.set_aside()
}

/// Brings the entry into the base.
fn agree(draft: &mut Draft<'_>, entry: &Entry) -> Planning<Touched> {
    let mut touched = Touched::default();
    for change in &entry.change {
        match change {
            Mutation::Make(object) => {
                let stored =
                    Stored { object: object.clone(), made: entry.seq, set: BTreeMap::new(), links: 0 };
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
                let (at, child) = (place(draft, at)?, known(draft, *child)?);
                touch_link(draft, &mut touched, &at, Some(child))?;
                draft.set_base_link(&at, Some((child, entry.seq)))?;
            }
            Mutation::Unlink(at) => {
                let at = place(draft, at)?;
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

fn known(draft: &Draft<'_>, id: ObjectId) -> Planning<Num> {
    draft.num(id)?.ok_or_else(|| PlanError::Log(format!("there is no object {id}")))
}

fn place(draft: &Draft<'_>, at: &LinkName) -> Planning<At> {
    Ok(At { parent: known(draft, at.parent)?, name: at.name.clone() })
}

pub(super) fn touch_link(draft: &Draft<'_>, touched: &mut Touched, at: &At, child: Option<Num>) -> Planning {
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
    draft: &mut Draft<'_>,
    touched: &mut Touched,
    entry: &Entry,
    id: ObjectId,
    fields: &[Field],
    change: impl FnOnce(&mut Stored),
) -> Planning {
    let num = known(draft, id)?;
    let Some(mut stored) = draft.base(num)? else {
        return Err(PlanError::Log(format!("object {id} was never in the store")));
    };
    touched.objects.entry(num).or_insert_with(|| stored.clone());
    change(&mut stored);
    stored.set.extend(fields.iter().map(|field| (field.clone(), entry.seq)));
    let new = draft.made.contains(&num).then(|| stored.object.clone());
    draft.set_base(num, Some(stored))?;
    if new.is_some() {
        draft.set_local(num, new);
    }
    Ok(())
}

/// Names that the store does not have any more, or has for something else, and that were the same here.
/// The objects that had them.
fn lose_names(
    draft: &mut Draft<'_>,
    touched: &Touched,
    gone: &mut BTreeMap<Num, Gone>,
) -> Planning<BTreeSet<Num>> {
    let mut lost = BTreeSet::new();
    for (at, before) in &touched.links {
        let now = draft.base_link(at)?.map(|(child, _)| child);
        let Some(here) = draft.link(at)?.filter(|here| now != Some(*here)) else { continue };
        // Also what this node had put there, and others took away since: see `make_way`.
        let was_agreed =
            *before == Some(here) || touched.children.get(&here).is_some_and(|(_, base)| base.contains(at));
        if was_agreed {
            draft.set_link(at, None);
            lost.insert(here);
            if let Some(gone) = gone.get_mut(&here) {
                gone.lost.push(at.clone());
            }
        }
    }
    Ok(lost)
}

/// Names that are new in the store: those of directories before those in them.
fn gain_names(draft: &mut Draft<'_>, touched: &Touched, deleted_here: &BTreeSet<Num>) -> Planning {
    let mut gained = Vec::new();
    for (at, before) in &touched.links {
        // Where this node had put it, it was before others did anything: see `make_way`.
        let was_there = |child| touched.children.get(&child).is_some_and(|(_, base)| base.contains(at));
        if let Some((child, _)) = draft.base_link(at)?
            && Some(child) != *before
            && !was_there(child)
        {
            gained.push((0, at.clone(), child));
        }
    }
    // One new object is nowhere but there.
    let is_one = matches!(&gained[..], [(_, at, child)] if draft.made.contains(child) && at.parent != *child);
    if !is_one {
        let mut known = BTreeMap::from([(ROOT, 0)]);
        for (deep, at, _) in &mut gained {
            *deep = depth(draft, at.parent, &mut known)?;
        }
        gained.sort();
    }
    for (_, at, _) in gained {
        let at = draft.known_place(&at);
        let Some((child, _)) = draft.base_link(&at)? else { continue };
        if draft.link(&at)? == Some(child) {
            continue;
        }
        if let Some((here, base)) = touched.children.get(&child) {
            take_back_move(draft, child, here, base)?;
        }
        let in_the_way = draft.link(&at)?.is_some();
        let fell_with_directory = !draft.is_alive(at.parent)?;
        draft.put(&at, child)?;
        if deleted_here.contains(&child) && !in_the_way && !fell_with_directory {
            draft.keep(&at, ConflictKind::DeletedChanged, None, None)?;
        }
    }
    Ok(())
}

/// The store moved an object; if it was moved here, too, that move gives way. So does the place of a directory that was made
/// here and was not known to be sent: this machine may have forgotten where it was since.
fn take_back_move(draft: &mut Draft<'_>, child: Num, here: &BTreeSet<At>, base: &BTreeSet<At>) -> Planning {
    let moved_here = base.difference(here).next().is_some() && here.difference(base).next().is_some();
    let made_here = base.is_empty() && draft.is_directory(child)?;
    if !moved_here && !made_here {
        return Ok(());
    }
    let now: BTreeSet<At> = draft.names(Tree::Base, child)?.into_iter().collect();
    let moved_there = base.difference(&now).next().is_some();
    if !moved_there && !made_here {
        return Ok(());
    }
    for at in draft.names(Tree::Local, child)? {
        if !now.contains(&at) && !base.contains(&at) {
            draft.set_link(&at, None);
            draft.keep(&at, ConflictKind::Moved, Some(child), None)?;
            draft.refill(&at)?;
        }
    }
    Ok(())
}

/// How deep a directory is; `known` are those above others that were asked for.
fn depth(draft: &Draft<'_>, mut num: Num, known: &mut BTreeMap<Num, usize>) -> Planning<usize> {
    let (mut passed, mut way) = (Vec::new(), Way::default());
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
        if way.is_circle(num) {
            return Err(circle());
        }
    };
    for num in passed.into_iter().rev() {
        depth += 1;
        known.insert(num, depth);
    }
    Ok(depth)
}

/// A conflict in which both sides have become the same is none.
fn tidy(draft: &mut Draft<'_>, touched: &Touched) -> Planning {
    for at in touched.links.keys() {
        let at = draft.known_place(at);
        if let Some(conflict) = draft.conflict(&at)?
            && conflict.mine == draft.link(&at)?
        {
            draft.set_conflict(&at, None);
        }
    }
    Ok(())
}
