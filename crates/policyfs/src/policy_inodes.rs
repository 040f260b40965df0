//! The inodes shown to the kernel, and the rules under which each is opened.
//!
//! A file that no rule matches is the engine's own node. Any other file is a separate node per rule set of the name by
//! which it was found, and one more for callers with a redacted view. These are separate inodes to the kernel with
//! separate page caches, so no reader of one sees a page of the other. A hard link found by two names has two nodes if
//! the rules of the names differ.
//!
//! An unknown node is never opened: ESTALE makes the kernel repeat the lookup, which registers the node. That covers
//! every change behind the kernel's back: a new policy, or a name that moved to another rule set. After a takeover the
//! next daemon continues with the same nodes: see [`records`](crate::records).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use shunt_fuse::{Errno, NodeId};
use shunt_policy::{Redaction, RuleSet};

use crate::records::{RecordIndex, RecordedRules, Records, Restored, RestoredRules};

/// Tag of the ids allocated here: no node of the engine and no takeover mark has exactly these high bits.
const POLICY_NODE_TAG: u64 = 0b0011 << 60;

/// A file as some callers see it.
#[derive(Clone)]
pub(crate) struct View {
    /// The engine's node.
    pub(crate) inner: NodeId,
    /// The rules that match it.
    pub(crate) class: RuleSet,
    /// The redaction that applies to its readers.
    pub(crate) redaction: Option<Arc<Redaction>>,
    /// The path by which it was found, if rules require an audit.
    pub(crate) path: Option<Arc<[u8]>>,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    inner: NodeId,
    class: RuleSet,
    redaction: Option<Arc<Redaction>>,
}

impl View {
    fn recorded_rules(&self) -> RecordedRules<'_> {
        RecordedRules::Ruled(&self.class, self.redaction.as_ref())
    }

    fn key(&self) -> Key {
        Key { inner: self.inner, class: self.class.clone(), redaction: self.redaction.clone() }
    }
}

struct TrackedNode {
    view: View,
    lookups: u64,
    /// The rules changed since.
    retired: bool,
    record: RecordIndex,
}

#[derive(Default)]
struct Tables {
    /// Nodes of the engine that no rule matches.
    free: HashMap<NodeId, RecordIndex>,
    by_id: HashMap<NodeId, TrackedNode>,
    ids: HashMap<Key, NodeId>,
    /// Ids in `by_id` by the engine's node.
    ids_by_inner: HashMap<NodeId, Vec<NodeId>>,
    last: u64,
    generation: u64,
    /// Records for the next daemon, if takeover is possible.
    records: Option<Records>,
}

/// The result of resolving a node id.
pub(crate) enum ResolvedNode {
    /// A node of the engine that no rule matches.
    Free(NodeId),
    /// A node with rules.
    View(View),
    /// A node whose rules changed since.
    Retired(View),
    /// An unknown node: a directory, or one that must be looked up again.
    Unknown(NodeId),
}

/// All nodes that the kernel holds.
pub(crate) struct Views(Mutex<Tables>);

impl Default for Views {
    fn default() -> Self {
        // A random start keeps ids of an earlier daemon from naming other files.
        let last = u64::from(RandomState::new().hash_one(0) as u32 & 0x0fff_ffff) << 32;
        Self(Mutex::new(Tables { last, ..Tables::default() }))
    }
}

/// Reports whether an id was allocated here.
fn is_ours(id: NodeId) -> bool {
    id.0 >> 60 == POLICY_NODE_TAG >> 60
}

impl Views {
    /// Counts a lookup of a file; returns the node id for the kernel, and whether it is a new one in addition to
    /// others of the same file.
    ///
    /// # Errors
    /// ESTALE if the rules changed.
    pub(crate) fn show(&self, generation: u64, view: View) -> Result<(NodeId, bool), Errno> {
        let mut tables = self.0.lock();
        if tables.generation != generation {
            return Err(Errno::STALE);
        }
        let inner = view.inner;
        if view.class.is_free() && !tables.by_id.contains_key(&inner) {
            tables.set_free(inner);
            return Ok((inner, false));
        }
        let key = view.key();
        if let Some(id) = tables.ids.get(&key).copied()
            && let Some(tracked) = tables.by_id.get_mut(&id)
        {
            tracked.lookups += 1;
            tracked.view.path = view.path.or(tracked.view.path.take());
            let (record, lookups) = (tracked.record, tracked.lookups);
            tables.records.iter().for_each(|records| records.count(record, lookups));
            return Ok((id, false));
        }
        let id = tables.new_id();
        tables.ids.insert(key, id);
        let several = tables.add(id, view, 1);
        Ok((id, several || tables.free.contains_key(&inner)))
    }

    /// Resolves a node id.
    ///
    /// # Errors
    /// ESTALE if another daemon allocated the id.
    pub(crate) fn get(&self, id: NodeId) -> Result<ResolvedNode, Errno> {
        let tables = self.0.lock();
        match tables.by_id.get(&id) {
            Some(tracked) if tracked.retired => Ok(ResolvedNode::Retired(tracked.view.clone())),
            Some(tracked) => Ok(ResolvedNode::View(tracked.view.clone())),
            None if is_ours(id) => Err(Errno::STALE),
            None if tables.free.contains_key(&id) => Ok(ResolvedNode::Free(id)),
            None => Ok(ResolvedNode::Unknown(id)),
        }
    }

    /// Drops lookup references of the kernel; returns the engine's node.
    pub(crate) fn forget(&self, id: NodeId, lookups: u64) -> NodeId {
        let mut tables = self.0.lock();
        let Some(tracked) = tables.by_id.get_mut(&id) else { return id };
        let inner = tracked.view.inner;
        tracked.lookups = tracked.lookups.saturating_sub(lookups);
        let (record, lookups) = (tracked.record, tracked.lookups);
        if lookups == 0 && id != inner {
            tables.remove(id);
        } else {
            tables.records.iter().for_each(|records| records.count(record, lookups));
        }
        inner
    }

    /// Removes a node that the engine no longer holds.
    pub(crate) fn remove(&self, inner: NodeId) {
        let mut tables = self.0.lock();
        tables.end_free(inner);
        tables.remove(inner);
    }

    /// Reports whether a node of the engine is registered here.
    pub(crate) fn is_registered(&self, inner: NodeId) -> bool {
        let tables = self.0.lock();
        tables.free.contains_key(&inner) || tables.by_id.contains_key(&inner)
    }

    /// Moves a file to the rules of its new name. If it is the only name, the node continues under them; otherwise the
    /// node is looked up again on its next use. Returns the node that continues, if any, and the retired ones.
    pub(crate) fn moved(
        &self,
        inner: NodeId,
        from: &RuleSet,
        to: &RuleSet,
        only: bool,
    ) -> (Option<NodeId>, Vec<NodeId>) {
        let mut tables = self.0.lock();
        let key = |class: &RuleSet| Key { inner, class: class.clone(), redaction: None };
        // Redacted views are decided again under the new rules.
        let others: Vec<NodeId> = tables
            .by_id
            .iter()
            .filter(|(_, tracked)| tracked.view.inner == inner && tracked.view.redaction.is_some())
            .map(|(id, _)| *id)
            .collect();
        let mut retired = others;
        retired.iter().for_each(|id| tables.retire(*id));
        let old = match tables.ids.remove(&key(from)) {
            Some(id) => id,
            None if from.is_free() && tables.end_free(inner) => inner,
            None => return (None, retired),
        };
        let fits = only && !tables.ids.contains_key(&key(to));
        if !fits {
            tables.retire(old);
            retired.push(old);
            return (None, retired);
        }
        if to.is_free() && old == inner {
            tables.drop_node(old);
            tables.set_free(inner);
            return (Some(inner), retired);
        }
        tables.ids.insert(key(to), old);
        let view = View { inner, class: to.clone(), redaction: None, path: None };
        let lookups = tables.drop_node(old).map_or(0, |tracked| tracked.lookups);
        tables.add(old, view, lookups);
        (Some(old), retired)
    }

    /// Retires all nodes after a policy change, so that everything is decided again. Returns the new generation and all
    /// nodes that the kernel holds under the old rules.
    pub(crate) fn retire_all(&self) -> (u64, Vec<NodeId>) {
        let mut tables = self.0.lock();
        let nodes = tables.free.keys().chain(tables.by_id.keys()).copied().collect();
        tables.ids.clear();
        tables.by_id.values_mut().for_each(|tracked| tracked.retired = true);
        let free = std::mem::take(&mut tables.free);
        let Tables { by_id, records, .. } = &mut *tables;
        if let Some(records) = records {
            free.into_values().for_each(|record| records.remove(record));
            by_id.values().for_each(|tracked| records.retire(tracked.record));
            records.end_classes();
        }
        tables.generation += 1;
        (tables.generation, nodes)
    }

    /// Starts recording nodes for the next daemon. Must be called before the kernel receives any node.
    pub(crate) fn start_recording(&self, records: Records) {
        self.0.lock().records = Some(records);
    }

    /// Restores the nodes of an earlier daemon with the same rules.
    pub(crate) fn restore(&self, records: Records, restored: Vec<Restored>, none: &RuleSet) {
        let mut tables = self.0.lock();
        tables.records = Some(records);
        for Restored { record, node, inner, lookups, rules } in restored {
            let (class, redaction, retired) = match rules {
                RestoredRules::Free => {
                    tables.free.insert(node, record);
                    continue;
                }
                RestoredRules::Ruled(Some(class), redaction) => (class, redaction, false),
                // A retired node is looked up again, so its class is never used.
                RestoredRules::Ruled(None, redaction) => (none.clone(), redaction, true),
            };
            let view = View { inner, class, redaction, path: None };
            if !retired {
                tables.ids.insert(view.key(), node);
            }
            tables.by_id.insert(node, TrackedNode { view, lookups, retired, record });
            tables.ids_by_inner.entry(inner).or_default().push(node);
        }
    }

    /// Runs `f` on the records for the next daemon, if there are any.
    pub(crate) fn with_records<T>(&self, f: impl FnOnce(&Records) -> T) -> Option<T> {
        self.0.lock().records.as_ref().map(f)
    }

    /// Reports whether the kernel may know a file by several ids: an update of one does not reach the other's caches.
    pub(crate) fn is_several(&self, inner: NodeId) -> bool {
        let tables = self.0.lock();
        let ids = tables.ids_by_inner.get(&inner).map_or(0, Vec::len);
        ids + usize::from(tables.free.contains_key(&inner)) > 1
    }

    /// Returns the other ids by which the kernel knows a file.
    pub(crate) fn others(&self, inner: NodeId, id: NodeId) -> Vec<NodeId> {
        let tables = self.0.lock();
        let free = tables.free.get_key_value(&inner).map(|(node, _)| node);
        let ids = tables.ids_by_inner.get(&inner).into_iter().flatten().chain(free);
        ids.copied().filter(|other| *other != id).collect()
    }

    /// Reports whether the kernel holds an id allocated here.
    pub(crate) fn holds(&self, id: NodeId) -> bool {
        self.0.lock().by_id.contains_key(&id)
    }

    /// Number of registered nodes.
    pub(crate) fn len(&self) -> usize {
        let tables = self.0.lock();
        tables.free.len() + tables.by_id.len()
    }
}

impl Tables {
    fn new_id(&mut self) -> NodeId {
        loop {
            self.last = (self.last + 1) & !(0b1111 << 60);
            let id = NodeId(POLICY_NODE_TAG | self.last);
            // An earlier daemon may have allocated this id.
            if !self.by_id.contains_key(&id) {
                return id;
            }
        }
    }

    /// Registers a node; returns whether the file has another id allocated here.
    fn add(&mut self, id: NodeId, view: View, lookups: u64) -> bool {
        let inner = view.inner;
        let record =
            self.records.as_mut().and_then(|records| records.add(id, inner, lookups, view.recorded_rules()));
        self.by_id.insert(id, TrackedNode { view, lookups, retired: false, record });
        let ids = self.ids_by_inner.entry(inner).or_default();
        ids.push(id);
        ids.len() > 1
    }

    fn set_free(&mut self, inner: NodeId) {
        let Self { free, records, .. } = self;
        free.entry(inner).or_insert_with(|| records.as_mut()?.add(inner, inner, 0, RecordedRules::Free));
    }

    fn end_free(&mut self, inner: NodeId) -> bool {
        let Some(record) = self.free.remove(&inner) else { return false };
        self.records.iter_mut().for_each(|records| records.remove(record));
        true
    }

    fn retire(&mut self, id: NodeId) {
        if let Some(tracked) = self.by_id.get_mut(&id) {
            tracked.retired = true;
            let (key, record) = (tracked.view.key(), tracked.record);
            self.records.iter().for_each(|records| records.retire(record));
            self.unlist(&key, id);
        }
    }

    fn remove(&mut self, id: NodeId) {
        if let Some(tracked) = self.drop_node(id) {
            self.unlist(&tracked.view.key(), id);
        }
    }

    fn drop_node(&mut self, id: NodeId) -> Option<TrackedNode> {
        let tracked = self.by_id.remove(&id)?;
        self.records.iter_mut().for_each(|records| records.remove(tracked.record));
        if let Entry::Occupied(mut ids) = self.ids_by_inner.entry(tracked.view.inner) {
            ids.get_mut().retain(|other| *other != id);
            if ids.get().is_empty() {
                ids.remove();
            }
        }
        Some(tracked)
    }

    /// Removes the key, unless another node has replaced it.
    fn unlist(&mut self, key: &Key, id: NodeId) {
        if self.ids.get(key) == Some(&id) {
            self.ids.remove(key);
        }
    }
}
