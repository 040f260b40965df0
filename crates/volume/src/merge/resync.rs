//! Merges the whole tree of the store at once, if its log has been truncated beyond the base. The difference is merged as if it
//! were one commit of another node. Commits of this node that the store accepted meanwhile are replayed first, so that they are
//! not taken for changes of others.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{NodeName, ObjectId, Seq};
use crate::merge::log_apply::{Touched, follow_own, merge_remote, touch_link};
use crate::merge::staged_tree::{Changes, IdAllocator, MergeResult, StagedTree};
use crate::merge::{DentryKey, Ino, PlanError, ROOT, Tree, Trees};
use crate::object::{LinkName, VersionedObject};
use crate::store::{LogEntry, Mutation, Transaction};

/// The difference between the store, at one log entry, and the base. Unchanged parts may be included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Objects of the store.
    pub objects: BTreeMap<ObjectId, VersionedObject>,
    /// Names in its directories: the object and the commit that set the name, or `None` if it was removed.
    pub links: BTreeMap<LinkName, Option<(ObjectId, Seq)>>,
}

/// Returns the changes of both trees once the store's tree is the base, as if one commit had made all the difference.
///
/// `own` are commits of this node that the store accepted and whose log entries were not read: their changes are not changes of
/// others. `theirs` names the other side of conflicts.
///
/// # Errors
/// [`PlanError::Log`] if the snapshot is inconsistent; [`PlanError::Read`].
pub fn resync(
    trees: &dyn Trees,
    fresh: &mut dyn IdAllocator,
    own: &[Transaction],
    snapshot: &Snapshot,
    theirs: &NodeName,
) -> Result<Changes, PlanError> {
    let mut draft = StagedTree::new(trees, fresh, theirs.clone());
    let mut touched = Touched::default();
    let mut emptied = BTreeSet::new();
    for item in own {
        record_freed_names(&draft, &mut touched, item)?;
        let entry = LogEntry {
            seq: Seq(0),
            node: theirs.clone(),
            at: crate::object::Time(0),
            change: item.mutations.clone(),
        };
        emptied.extend(follow_own(&mut draft, &entry)?);
    }
    // Created by this node, and possibly changed by others since.
    draft.made.clear();
    replace_base(&mut draft, &mut touched, snapshot, emptied)?;
    merge_remote(&mut draft, &touched)?;
    draft.finish()
}

/// Records that a name to which this node linked an object was free then: others had removed it.
fn record_freed_names(draft: &StagedTree<'_>, touched: &mut Touched, item: &Transaction) -> MergeResult {
    for change in &item.mutations {
        let Mutation::Link(at, _) = change else { continue };
        if item.mutations.contains(&Mutation::Unlink(at.clone())) {
            continue;
        }
        if let Some(parent) = draft.num(at.parent)? {
            let at = DentryKey { parent, name: at.name.clone() };
            if let Some((before, _)) = draft.base_link(&at)? {
                touch_link(draft, touched, &at, Some(before))?;
            }
        }
    }
    Ok(())
}

/// Replaces the base with the store's tree. `emptied` are directories that this node deleted: others had emptied them before.
fn replace_base(
    draft: &mut StagedTree<'_>,
    touched: &mut Touched,
    snapshot: &Snapshot,
    emptied: BTreeSet<Ino>,
) -> MergeResult {
    for (id, stored) in &snapshot.objects {
        match draft.num(*id)? {
            Some(num) => {
                let before = match draft.base(num)? {
                    Some(before) => before,
                    // It is unknown which version this node sent: any difference counts as a change.
                    None => unlike(stored),
                };
                touched.objects.insert(num, before);
                draft.set_base(num, Some(stored.clone()))?;
            }
            None => {
                let num = draft.new_num();
                draft.set_num(*id, Some(num));
                draft.set_local(num, Some(stored.object.clone()));
                draft.set_base(num, Some(stored.clone()))?;
                draft.made.insert(num);
                touched.children.entry(num).or_default();
            }
        }
    }
    for (at, now) in &snapshot.links {
        let Some(parent) = draft.num(at.parent)? else { continue };
        let at = DentryKey { parent, name: at.name.clone() };
        let now = match now {
            Some((child, seq)) => match draft.num(*child)? {
                Some(child) => Some((child, *seq)),
                None => {
                    return Err(PlanError::Log(format!(
                        "a name refers to object {child}, which does not exist"
                    )));
                }
            },
            None => None,
        };
        lead(draft, touched, &at, now)?;
    }
    // Names in deleted directories are removed.
    let mut queue: Vec<Ino> = touched.children.keys().copied().chain(emptied).collect();
    let mut seen = BTreeSet::new();
    while let Some(num) = queue.pop() {
        if num == ROOT || !seen.insert(num) || !draft.names(Tree::Base, num)?.is_empty() {
            continue;
        }
        for (name, child) in draft.children(Tree::Base, num)? {
            lead(draft, touched, &DentryKey { parent: num, name }, None)?;
            seen.remove(&child);
            queue.push(child);
        }
    }
    Ok(())
}

/// Returns a version that differs in each field.
fn unlike(stored: &VersionedObject) -> VersionedObject {
    let mut before = stored.clone();
    let object = &mut before.object;
    object.content.digest[0] ^= 1;
    object.mode ^= 1;
    object.owner.0 ^= 1;
    object.group.0 ^= 1;
    before
}

/// Changes or removes a name in the base.
fn lead(
    draft: &mut StagedTree<'_>,
    touched: &mut Touched,
    at: &DentryKey,
    now: Option<(Ino, Seq)>,
) -> MergeResult {
    if let Some((before, _)) = draft.base_link(at)? {
        touch_link(draft, touched, at, Some(before))?;
    }
    if let Some((child, _)) = now {
        touch_link(draft, touched, at, Some(child))?;
    }
    draft.set_base_link(at, now)
}
