//! Reads the whole tree of a store and compares it with the base, for a node whose position is no longer in the log.

use std::collections::BTreeSet;

use crate::id::{ObjectId, Seq};
use crate::merge::{DentryKey, PlanError, Snapshot, Tree, Trees};
use crate::object::LinkName;
use crate::store::{MetaStore, Mutation, Page, StoreError, Transaction};
use crate::sync::{SyncError, SyncReplica};

/// Objects read in one request.
const PAGE_OBJECTS: usize = 1024;

/// Log entries read in one request.
const MAX_CATCH_UP_ENTRIES: usize = 512;

/// Maximum number of re-reads because of concurrent commits, before the resync fails and is retried later.
const MAX_ATTEMPTS: u32 = 1000;

/// Returns how the store differs from the base of `site`, and the log position of that state. `own` are commits of this node:
/// everything that they touch is included, even if equal.
///
/// Pages of a changing tree are inconsistent with each other. Objects touched by commits during the scan are therefore read
/// again, until a pass without a commit. Only differences are kept in memory.
pub(super) fn snapshot(
    replica: &impl SyncReplica,
    store: &dyn MetaStore,
    own: &[Transaction],
) -> Result<(Snapshot, Seq), SyncError> {
    let mut reading =
        SnapshotReader { replica, store, found: Snapshot::default(), own_objects: BTreeSet::new() };
    let mut names = BTreeSet::new();
    for change in own.iter().flat_map(|item| &item.mutations) {
        collect_changed(change, &mut reading.own_objects, Some(&mut names));
    }
    let mut read_to = store.head()?;
    let mut from = Some(ObjectId(0));
    while let Some(at) = from {
        let page = store.scan(at, PAGE_OBJECTS)?;
        from = page.next;
        reading.compare(page)?;
    }
    for _ in 0..MAX_ATTEMPTS {
        let entries = store.log_since(read_to, MAX_CATCH_UP_ENTRIES)?;
        let Some(last) = entries.last() else {
            reading.all_of(names)?;
            return Ok((reading.found, read_to));
        };
        read_to = last.seq;
        let mut touched = BTreeSet::new();
        for change in entries.iter().flat_map(|entry| &entry.change) {
            collect_changed(change, &mut touched, None);
        }
        for id in touched {
            reading.reread(id)?;
        }
    }
    Err(StoreError::Unreachable("the volume changes faster than it can be read".into()).into())
}

/// Collects the objects and names that a mutation changes.
fn collect_changed(change: &Mutation, ids: &mut BTreeSet<ObjectId>, names: Option<&mut BTreeSet<LinkName>>) {
    let name = match change {
        Mutation::Make(object) => {
            ids.insert(object.id);
            return;
        }
        Mutation::Link(at, child) => {
            ids.insert(*child);
            at
        }
        Mutation::Unlink(at) => at,
        set => {
            ids.extend(set.sets());
            return;
        }
    };
    ids.insert(name.parent);
    if let Some(names) = names {
        names.insert(name.clone());
    }
}

struct SnapshotReader<'a, S> {
    replica: &'a S,
    store: &'a dyn MetaStore,
    found: Snapshot,
    /// Objects that are included even if they are equal.
    own_objects: BTreeSet<ObjectId>,
}

impl<S: SyncReplica> SnapshotReader<'_, S> {
    fn compare(&mut self, page: Page) -> Result<(), SyncError> {
        let Self { replica, found, own_objects, .. } = self;
        replica.read(&mut |trees| {
            for link in &page.links {
                let now = Some((link.child, link.set));
                if base_link(trees, &link.at)? != now {
                    found.links.insert(link.at.clone(), now);
                }
            }
            let listed: BTreeSet<&LinkName> = page.links.iter().map(|link| &link.at).collect();
            for stored in &page.objects {
                let id = stored.object.id;
                let num = trees.num(id)?;
                let base = num.map(|num| trees.base(num)).transpose()?.flatten();
                if base.as_ref() != Some(stored) || own_objects.contains(&id) {
                    found.objects.insert(id, stored.clone());
                }
                let Some(num) = num else { continue };
                for (name, _) in trees.children(Tree::Base, num)? {
                    let at = LinkName { parent: id, name };
                    if !listed.contains(&at) {
                        found.links.insert(at, None);
                    }
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Reads one object and its entries again.
    fn reread(&mut self, id: ObjectId) -> Result<(), SyncError> {
        self.found.objects.remove(&id);
        let first = LinkName { parent: id, name: Vec::new() };
        let old: Vec<LinkName> = self
            .found
            .links
            .range(first..)
            .map(|(at, _)| at)
            .take_while(|at| at.parent == id)
            .cloned()
            .collect();
        for at in old {
            self.found.links.remove(&at);
        }
        let mut page = self.store.scan(id, 1)?;
        page.objects.retain(|stored| stored.object.id == id);
        page.links.retain(|link| link.at.parent == id);
        self.compare(page)
    }

    /// Adds these names even if they are equal. Their directories are [own objects](Self::own_objects), so a directory that was not
    /// found does not exist.
    fn all_of(&mut self, names: BTreeSet<LinkName>) -> Result<(), SyncError> {
        let Self { replica, found, .. } = self;
        replica.read(&mut |trees| {
            for at in &names {
                if !found.links.contains_key(at) {
                    let is_there = found.objects.contains_key(&at.parent);
                    let now = if is_there { base_link(trees, at)? } else { None };
                    found.links.insert(at.clone(), now);
                }
            }
            Ok(())
        })?;
        Ok(())
    }
}

fn base_link(trees: &dyn Trees, at: &LinkName) -> Result<Option<(ObjectId, Seq)>, PlanError> {
    let Some(parent) = trees.num(at.parent)? else { return Ok(None) };
    let Some((child, seq)) = trees.link(Tree::Base, &DentryKey { parent, name: at.name.clone() })? else {
        return Ok(None);
    };
    Ok(trees.base(child)?.map(|stored| (stored.object.id, seq)))
}
