//! Which inodes the kernel is shown, and by which rules each is opened.
//!
//! A file of which no rule speaks is the engine's own node. Any other is a node of its own for the rules that speak of
//! the name it was found by, and one more for those who see less of it: two inodes to the kernel, so two page caches, and
//! no reader of the one meets a page of the other. A hard link found by two names is two nodes where the names differ in
//! their rules.
//!
//! A node that is not known here is never opened: ESTALE makes the kernel look its name up again, which makes it known.
//! That heals all that is changed below the kernel's feet: a new policy, a name given by another class. Another daemon
//! goes on with the same nodes: see [`records`](super::records).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use shunt_fuse::{Errno, NodeId};
use shunt_policy::{Redaction, RuleSet};

use super::records::{Place, Records, Restored, Was, What};

/// Ids made here: no node of the engine, and no mark of a takeover, has these bits alone.
const OURS: u64 = 0b0011 << 60;

/// A file as some see it.
#[derive(Clone)]
pub(super) struct View {
    /// The engine's node.
    pub(super) inner: NodeId,
    /// The rules that speak of it.
    pub(super) class: RuleSet,
    /// What its readers do not see.
    pub(super) redaction: Option<Arc<Redaction>>,
    /// Where it was found, where rules want that told.
    pub(super) path: Option<Arc<[u8]>>,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    inner: NodeId,
    class: RuleSet,
    redaction: Option<Arc<Redaction>>,
}

impl View {
    fn what(&self) -> What<'_> {
        What::Ruled(&self.class, self.redaction.as_ref())
    }

    fn key(&self) -> Key {
        Key { inner: self.inner, class: self.class.clone(), redaction: self.redaction.clone() }
    }
}

struct Known {
    view: View,
    lookups: u64,
    /// The rules are others by now.
    retired: bool,
    record: Place,
}

#[derive(Default)]
struct Tables {
    /// Nodes of the engine of which no rule speaks.
    free: HashMap<NodeId, Place>,
    known: HashMap<NodeId, Known>,
    ids: HashMap<Key, NodeId>,
    /// By the engine's node, those in `known`.
    shown: HashMap<NodeId, Vec<NodeId>>,
    last: u64,
    generation: u64,
    /// What the next daemon is to know, where there is to be one.
    records: Option<Records>,
}

/// What a node is.
pub(super) enum Seen {
    /// One of the engine's, of which no rule speaks.
    Free(NodeId),
    /// One with rules.
    View(View),
    /// One with rules that are others by now.
    Retired(View),
    /// Not known: a directory, or something to be looked up again.
    Unknown(NodeId),
}

/// All nodes that the kernel was shown.
pub(super) struct Views(Mutex<Tables>);

impl Default for Views {
    fn default() -> Self {
        // What an earlier daemon called by an id is not taken for something else.
        let last = u64::from(RandomState::new().hash_one(0) as u32 & 0x0fff_ffff) << 32;
        Self(Mutex::new(Tables { last, ..Tables::default() }))
    }
}

/// Whether an id is one that was made here.
fn is_ours(id: NodeId) -> bool {
    id.0 >> 60 == OURS >> 60
}

impl Views {
    /// Counts a lookup of a file; tells by which id the kernel is to know it, and whether that is a new one beside others.
    ///
    /// # Errors
    /// ESTALE: the rules are others by now.
    pub(super) fn show(&self, generation: u64, view: View) -> Result<(NodeId, bool), Errno> {
        let mut tables = self.0.lock();
        if tables.generation != generation {
            return Err(Errno::STALE);
        }
        let inner = view.inner;
        if view.class.is_free() && !tables.known.contains_key(&inner) {
            tables.set_free(inner);
            return Ok((inner, false));
        }
        let key = view.key();
        if let Some(id) = tables.ids.get(&key).copied()
            && let Some(known) = tables.known.get_mut(&id)
        {
            known.lookups += 1;
            known.view.path = view.path.or(known.view.path.take());
            let (record, lookups) = (known.record, known.lookups);
            tables.records.iter().for_each(|records| records.count(record, lookups));
            return Ok((id, false));
        }
        let id = tables.new_id();
        tables.ids.insert(key, id);
        let several = tables.add(id, view, 1);
        Ok((id, several || tables.free.contains_key(&inner)))
    }

    /// What a node is.
    ///
    /// # Errors
    /// ESTALE where it was made by another daemon.
    pub(super) fn get(&self, id: NodeId) -> Result<Seen, Errno> {
        let tables = self.0.lock();
        match tables.known.get(&id) {
            Some(known) if known.retired => Ok(Seen::Retired(known.view.clone())),
            Some(known) => Ok(Seen::View(known.view.clone())),
            None if is_ours(id) => Err(Errno::STALE),
            None if tables.free.contains_key(&id) => Ok(Seen::Free(id)),
            None => Ok(Seen::Unknown(id)),
        }
    }

    /// The kernel dropped references; tells of which of the engine's nodes. `holds`: whether the engine still has it,
    /// once it was told.
    pub(super) fn forget(&self, id: NodeId, lookups: u64) -> NodeId {
        let mut tables = self.0.lock();
        let Some(known) = tables.known.get_mut(&id) else { return id };
        let inner = known.view.inner;
        known.lookups = known.lookups.saturating_sub(lookups);
        let (record, lookups) = (known.record, known.lookups);
        if lookups == 0 && id != inner {
            tables.remove(id);
        } else {
            tables.records.iter().for_each(|records| records.count(record, lookups));
        }
        inner
    }

    /// The engine does not hold a node any more.
    pub(super) fn gone(&self, inner: NodeId) {
        let mut tables = self.0.lock();
        tables.end_free(inner);
        tables.remove(inner);
    }

    /// Whether a node of the engine is noted here.
    pub(super) fn notes(&self, inner: NodeId) -> bool {
        let tables = self.0.lock();
        tables.free.contains_key(&inner) || tables.known.contains_key(&inner)
    }

    /// A file was given a name of other rules. Its only one: the node goes on by those. One of several: it is looked up
    /// again by whoever uses it. Tells the node that goes on, if any, and those that do not.
    pub(super) fn moved(
        &self,
        inner: NodeId,
        from: &RuleSet,
        to: &RuleSet,
        only: bool,
    ) -> (Option<NodeId>, Vec<NodeId>) {
        let mut tables = self.0.lock();
        let key = |class: &RuleSet| Key { inner, class: class.clone(), redaction: None };
        // Those who see less of it see what the new rules say.
        let others: Vec<NodeId> = tables
            .known
            .iter()
            .filter(|(_, known)| known.view.inner == inner && known.view.redaction.is_some())
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
            tables.drop_known(old);
            tables.set_free(inner);
            return (Some(inner), retired);
        }
        tables.ids.insert(key(to), old);
        let view = View { inner, class: to.clone(), redaction: None, path: None };
        let lookups = tables.drop_known(old).map_or(0, |known| known.lookups);
        tables.add(old, view, lookups);
        (Some(old), retired)
    }

    /// The rules are others: whatever was decided is decided again. Tells the number of the new rules, and all that the
    /// kernel knows by the old ones.
    pub(super) fn retire_all(&self) -> (u64, Vec<NodeId>) {
        let mut tables = self.0.lock();
        let nodes = tables.free.keys().chain(tables.known.keys()).copied().collect();
        tables.ids.clear();
        tables.known.values_mut().for_each(|known| known.retired = true);
        let free = std::mem::take(&mut tables.free);
        let Tables { known, records, .. } = &mut *tables;
        if let Some(records) = records {
            free.into_values().for_each(|record| records.remove(record));
            known.values().for_each(|known| records.retire(known.record));
            records.end_classes();
        }
        tables.generation += 1;
        (tables.generation, nodes)
    }

    /// Has the next daemon know what is here. To be called before the kernel is shown anything.
    pub(super) fn keep(&self, records: Records) {
        self.0.lock().records = Some(records);
    }

    /// Goes on with what an earlier daemon knew, by the same rules.
    pub(super) fn restore(&self, records: Records, restored: Vec<Restored>, none: &RuleSet) {
        let mut tables = self.0.lock();
        tables.records = Some(records);
        for Restored { place, node, inner, lookups, what } in restored {
            let (class, redaction, retired) = match what {
                Was::Free => {
                    tables.free.insert(node, place);
                    continue;
                }
                Was::Ruled(Some(class), redaction) => (class, redaction, false),
                // Nothing asks for the class of what is looked up again.
                Was::Ruled(None, redaction) => (none.clone(), redaction, true),
            };
            let view = View { inner, class, redaction, path: None };
            if !retired {
                tables.ids.insert(view.key(), node);
            }
            tables.known.insert(node, Known { view, lookups, retired, record: place });
            tables.shown.entry(inner).or_default().push(node);
        }
    }

    /// The records for the next daemon, if it is to have any.
    pub(super) fn with_records<T>(&self, f: impl FnOnce(&Records) -> T) -> Option<T> {
        self.0.lock().records.as_ref().map(f)
    }

    /// Whether the kernel may know a file by several ids: what it is told of one it does not know of the other.
    pub(super) fn is_several(&self, inner: NodeId) -> bool {
        let tables = self.0.lock();
        let ids = tables.shown.get(&inner).map_or(0, Vec::len);
        ids + usize::from(tables.free.contains_key(&inner)) > 1
    }

    /// The other ids by which the kernel knows a file.
    pub(super) fn others(&self, inner: NodeId, id: NodeId) -> Vec<NodeId> {
        let tables = self.0.lock();
        let free = tables.free.get_key_value(&inner).map(|(node, _)| node);
        let ids = tables.shown.get(&inner).into_iter().flatten().chain(free);
        ids.copied().filter(|other| *other != id).collect()
    }

    /// Whether the kernel holds an id that was made here.
    pub(super) fn holds(&self, id: NodeId) -> bool {
        self.0.lock().known.contains_key(&id)
    }

    /// Nodes held here.
    pub(super) fn len(&self) -> usize {
        let tables = self.0.lock();
        tables.free.len() + tables.known.len()
    }
}

impl Tables {
    fn new_id(&mut self) -> NodeId {
        loop {
            self.last = (self.last + 1) & !(0b1111 << 60);
            let id = NodeId(OURS | self.last);
            // An earlier daemon may have made one far ahead.
            if !self.known.contains_key(&id) {
                return id;
            }
        }
    }

    /// Notes a node; tells whether the file has another one of ours.
    fn add(&mut self, id: NodeId, view: View, lookups: u64) -> bool {
        let inner = view.inner;
        let record = self.records.as_mut().and_then(|records| records.add(id, inner, lookups, view.what()));
        self.known.insert(id, Known { view, lookups, retired: false, record });
        let ids = self.shown.entry(inner).or_default();
        ids.push(id);
        ids.len() > 1
    }

    fn set_free(&mut self, inner: NodeId) {
        let Self { free, records, .. } = self;
        free.entry(inner).or_insert_with(|| records.as_mut()?.add(inner, inner, 0, What::Free));
    }

    fn end_free(&mut self, inner: NodeId) -> bool {
        let Some(record) = self.free.remove(&inner) else { return false };
        self.records.iter_mut().for_each(|records| records.remove(record));
        true
    }

    fn retire(&mut self, id: NodeId) {
        if let Some(known) = self.known.get_mut(&id) {
            known.retired = true;
            let (key, record) = (known.view.key(), known.record);
            self.records.iter().for_each(|records| records.retire(record));
            self.unlist(&key, id);
        }
    }

    fn remove(&mut self, id: NodeId) {
        if let Some(known) = self.drop_known(id) {
            self.unlist(&known.view.key(), id);
        }
    }

    fn drop_known(&mut self, id: NodeId) -> Option<Known> {
        let known = self.known.remove(&id)?;
        self.records.iter_mut().for_each(|records| records.remove(known.record));
        if let Entry::Occupied(mut shown) = self.shown.entry(known.view.inner) {
            shown.get_mut().retain(|other| *other != id);
            if shown.get().is_empty() {
                shown.remove();
            }
        }
        Some(known)
    }

    /// Unless another has taken its place.
    fn unlist(&mut self, key: &Key, id: NodeId) {
        if self.ids.get(key) == Some(&id) {
            self.ids.remove(key);
        }
    }
}
