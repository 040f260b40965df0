//! Merges the whole tree of the store at once, if its log has been truncated beyond the base. The difference is merged as if it
//! were one commit of another node. Commits of this node that the store accepted meanwhile are replayed first, so that they are
//! not taken for changes of others.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{NodeName, ObjectId, Seq};
use crate::merge::log_apply::{Affected, apply_own_entry, merge_remote, touch_link};
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
/// others. `remote_node` names the other side of conflicts.
///
/// # Errors
/// [`PlanError::Log`] if the snapshot is inconsistent; [`PlanError::Read`].
pub fn resync(
    trees: &dyn Trees,
    fresh: &mut dyn IdAllocator,
    own: &[Transaction],
    snapshot: &Snapshot,
    remote_node: &NodeName,
) -> Result<Changes, PlanError> {
    let mut staged = StagedTree::new(trees, fresh, remote_node.clone());
    let mut affected = Affected::default();
    let mut emptied = BTreeSet::new();
    for item in own {
        record_freed_names(&staged, &mut affected, item)?;
        let entry = LogEntry {
            seq: Seq(0),
            node: remote_node.clone(),
            at: crate::object::Time(0),
            change: item.mutations.clone(),
        };
        emptied.extend(apply_own_entry(&mut staged, &entry)?);
    }
    // Created by this node, and possibly changed by others since.
    staged.created.clear();
    replace_base(&mut staged, &mut affected, snapshot, emptied)?;
    merge_remote(&mut staged, &affected)?;
    staged.finish()
}

/// Records that a name to which this node linked an object was free then: others had removed it.
fn record_freed_names(staged: &StagedTree<'_>, affected: &mut Affected, item: &Transaction) -> MergeResult {
    for change in &item.mutations {
        let Mutation::Link(at, _) = change else { continue };
        if item.mutations.contains(&Mutation::Unlink(at.clone())) {
            continue;
        }
        if let Some(parent) = staged.num(at.parent)? {
            let at = DentryKey { parent, name: at.name.clone() };
            if let Some((before, _)) = staged.base_link(&at)? {
                touch_link(staged, affected, &at, Some(before))?;
            }
        }
    }
    Ok(())
}

/// Replaces the base with the store's tree. `emptied` are directories that this node deleted: others had emptied them before.
fn replace_base(
    staged: &mut StagedTree<'_>,
    affected: &mut Affected,
    snapshot: &Snapshot,
    emptied: BTreeSet<Ino>,
) -> MergeResult {
    for (id, stored) in &snapshot.objects {
        match staged.num(*id)? {
            Some(num) => {
                let before = match staged.base(num)? {
                    Some(before) => before,
                    // It is unknown which version this node sent: any difference counts as a change.
                    None => differing_version(stored),
                };
                affected.objects.insert(num, before);
                staged.set_base(num, Some(stored.clone()))?;
            }
            None => {
                let num = staged.new_num();
                staged.set_num(*id, Some(num));
                staged.set_local(num, Some(stored.object.clone()));
                staged.set_base(num, Some(stored.clone()))?;
                staged.created.insert(num);
                affected.children.entry(num).or_default();
            }
        }
    }
    for (at, now) in &snapshot.links {
        let Some(parent) = staged.num(at.parent)? else { continue };
        let at = DentryKey { parent, name: at.name.clone() };
        let now = match now {
            Some((child, seq)) => match staged.num(*child)? {
                Some(child) => Some((child, *seq)),
                None => {
                    return Err(PlanError::Log(format!(
                        "a name refers to object {child}, which does not exist"
                    )));
                }
            },
            None => None,
        };
        record_base_link(staged, affected, &at, now)?;
    }
    // Names in deleted directories are removed.
    let mut queue: Vec<Ino> = affected.children.keys().copied().chain(emptied).collect();
    let mut seen = BTreeSet::new();
    while let Some(num) = queue.pop() {
        if num == ROOT || !seen.insert(num) || !staged.names(Tree::Base, num)?.is_empty() {
            continue;
        }
        for (name, child) in staged.children(Tree::Base, num)? {
            record_base_link(staged, affected, &DentryKey { parent: num, name }, None)?;
            seen.remove(&child);
            queue.push(child);
        }
    }
    Ok(())
}

/// Returns a version that differs in each field.
fn differing_version(stored: &VersionedObject) -> VersionedObject {
    let mut before = stored.clone();
    let object = &mut before.object;
    object.content.digest[0] ^= 1;
    object.mode ^= 1;
    object.owner.0 ^= 1;
    object.group.0 ^= 1;
    before
}

/// Changes or removes a name in the base.
fn record_base_link(
    staged: &mut StagedTree<'_>,
    affected: &mut Affected,
    at: &DentryKey,
    now: Option<(Ino, Seq)>,
) -> MergeResult {
    if let Some((before, _)) = staged.base_link(at)? {
        touch_link(staged, affected, at, Some(before))?;
    }
    if let Some((child, _)) = now {
        touch_link(staged, affected, at, Some(child))?;
    }
    staged.set_base_link(at, now)
}
