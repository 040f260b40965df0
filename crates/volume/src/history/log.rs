//! Reads the log backwards and translates it to operations on paths. The path of an object as of a commit is reconstructed from
//! its current and its past names; it is unknown if those are no longer retained.

use std::collections::{HashMap, HashSet};

use crate::id::{NodeName, ObjectId, Seq};
use crate::object::{Kind, LinkName, Object, Time};
use crate::store::{LogEntry, MetaStore, Mutation, StoreError};

/// Number of log entries read at once.
const PAGE_ENTRIES: usize = 512;

/// Number of objects whose names are cached from one page to the next.
const MAX_CACHED_OBJECTS: usize = 100_000;

/// Maximum depth of a path.
const MAX_PATH_DEPTH: usize = 4096;

/// The current locations of objects.
pub trait NameSource {
    /// Returns the names of an object in the store, with the commits that set them.
    fn names(&self, id: ObjectId) -> Vec<(LinkName, Seq)>;

    /// Reports whether an object is a directory. Modification times of directories are omitted: they change with their names.
    fn is_directory(&self, id: ObjectId) -> bool;
}

/// A name of an object, set by the commit `since` and ended by `until`.
struct NameInterval {
    at: LinkName,
    since: Seq,
    until: Seq,
}

/// An entry of the log as operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Sequence number of the commit.
    pub seq: Seq,
    /// Commit time, by the clock of the store.
    pub at: Time,
    /// The node that committed it.
    pub node: NodeName,
    /// The operations; none if it only set times of directories.
    pub operations: Vec<Operation>,
}

/// An operation on a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The kind of operation.
    pub kind: OpKind,
    /// The path from the root directory at that time. `None`: the names of the object are no longer known.
    pub path: Option<Vec<u8>>,
}

/// The kind of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpKind {
    /// Created.
    Made(Kind),
    /// Written: the new size in bytes.
    Written(u64),
    /// Moved from another path.
    Moved(Vec<u8>),
    /// Linked: a further name for an existing object.
    Linked,
    /// A name was removed.
    Removed,
    /// Permission bits were set.
    Mode(u16),
    /// The owning user was set.
    Owner(u32),
    /// The owning group was set.
    Group(u32),
    /// Only the modification time was set.
    Touched,
    /// An extended attribute was set or removed.
    Xattr(Vec<u8>),
}

/// Reads the log backwards from its end.
pub struct Reader<'a> {
    store: &'a dyn MetaStore,
    name_source: &'a dyn NameSource,
    /// Later entries have been read.
    before: Seq,
    /// Cache of current and past names.
    names: HashMap<ObjectId, Vec<NameInterval>>,
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("before", &self.before).finish_non_exhaustive()
    }
}

impl<'a> Reader<'a> {
    /// Starts at the last commit.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    pub fn new(store: &'a dyn MetaStore, name_source: &'a dyn NameSource) -> Result<Self, StoreError> {
        Ok(Self { store, name_source, before: Seq(store.head()?.0 + 1), names: HashMap::new() })
    }

    /// Returns the next older commits, the latest first; empty at the beginning of the log.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    pub fn earlier(&mut self) -> Result<Vec<Commit>, StoreError> {
        let last = self.before.0.saturating_sub(1);
        if last == 0 {
            return Ok(Vec::new());
        }
        let first = last.saturating_sub(PAGE_ENTRIES as u64);
        let entries = match self.store.log_since(Seq(first), (last - first) as usize) {
            Err(StoreError::Forgotten(_)) => return Ok(Vec::new()),
            entries => entries?,
        };
        self.before = Seq(first + 1);
        let all = entries.iter().flat_map(|entry| &entry.change);
        self.load_names(&all.flat_map(referenced_objects).collect::<HashSet<_>>())?;
        entries.into_iter().rev().map(|entry| self.commit(entry)).collect()
    }

    /// Loads the names of objects that are not cached yet.
    fn load_names(&mut self, ids: &HashSet<ObjectId>) -> Result<(), StoreError> {
        if self.names.len() > MAX_CACHED_OBJECTS {
            self.names.clear();
        }
        let new: Vec<ObjectId> = ids.iter().copied().filter(|id| !self.names.contains_key(id)).collect();
        for id in &new {
            let now = self.name_source.names(*id).into_iter();
            let now = now.map(|(at, since)| NameInterval { at, since, until: Seq(u64::MAX) });
            self.names.insert(*id, now.collect());
        }
        let Some(history) = self.store.history().filter(|_| !new.is_empty()) else { return Ok(()) };
        for past in history.past_names(&new)? {
            let named = NameInterval { at: past.link.at, since: past.link.set, until: past.until };
            self.names.entry(past.link.child).or_default().push(named);
        }
        Ok(())
    }

    /// Returns the path of an object after a commit.
    fn path(&mut self, id: ObjectId, seq: Seq) -> Result<Option<Vec<u8>>, StoreError> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = id;
        while at != ObjectId::ROOT {
            self.load_names(&HashSet::from([at]))?;
            let known = self.names.get(&at).into_iter().flatten();
            let Some(named) =
                known.filter(|named| named.since <= seq && seq < named.until).min_by_key(|named| named.since)
            else {
                return Ok(None);
            };
            if names.len() == MAX_PATH_DEPTH {
                return Ok(None);
            }
            names.push(named.at.name.clone());
            at = named.at.parent;
        }
        names.reverse();
        Ok(Some(names.join(&b'/')))
    }

    fn path_at(&mut self, at: &LinkName, seq: Seq) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(mut path) = self.path(at.parent, seq)? else { return Ok(None) };
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&at.name);
        Ok(Some(path))
    }

    fn commit(&mut self, entry: LogEntry) -> Result<Commit, StoreError> {
        let (now, before) = (entry.seq, Seq(entry.seq.0.saturating_sub(1)));
        let made: HashMap<ObjectId, &Object> = entry.change.iter().filter_map(made).collect();
        let removed_names: Vec<&LinkName> = entry.change.iter().filter_map(removed).collect();
        let mut from: HashSet<&LinkName> = HashSet::new();
        let mut operations = Vec::new();
        for change in &entry.change {
            let (id, what) = match change {
                Mutation::Make(_) | Mutation::Unlink(_) | Mutation::Seal(_) => continue,
                Mutation::Link(at, child) => {
                    let what = match (made.get(child), self.moved_from(*child, now, at, &removed_names)) {
                        (Some(object), _) => OpKind::Made(object.kind),
                        (None, Some(old)) => {
                            from.insert(old);
                            OpKind::Moved(self.path_at(old, before)?.unwrap_or_else(|| old.name.clone()))
                        }
                        (None, None) => OpKind::Linked,
                    };
                    operations.push(Operation { kind: what, path: self.path_at(at, now)? });
                    continue;
                }
                Mutation::SetContent(id, content, _) => (id, OpKind::Written(content.size)),
                Mutation::SetMode(id, mode) => (id, OpKind::Mode(*mode)),
                Mutation::SetOwner(id, owner) => (id, OpKind::Owner(owner.0)),
                Mutation::SetGroup(id, group) => (id, OpKind::Group(group.0)),
                Mutation::SetModified(id, _) if self.is_directory(*id, now)? => continue,
                Mutation::SetModified(id, _) => (id, OpKind::Touched),
                Mutation::SetXattr(id, name, _) => (id, OpKind::Xattr(name.clone())),
            };
            operations.push(Operation { kind: what, path: self.path(*id, now)? });
        }
        for at in removed_names {
            if !from.contains(at) {
                operations.push(Operation { kind: OpKind::Removed, path: self.path_at(at, before)? });
            }
        }
        // Each other change sets the modification time as well.
        if operations.iter().any(|operation| operation.kind != OpKind::Touched) {
            operations.retain(|operation| operation.kind != OpKind::Touched);
        }
        Ok(Commit { seq: entry.seq, at: entry.at, node: entry.node, operations })
    }

    /// Reports whether an object is, or was, a directory.
    fn is_directory(&self, id: ObjectId, seq: Seq) -> Result<bool, StoreError> {
        let Some(history) = self.store.history().filter(|_| !self.name_source.is_directory(id)) else {
            return Ok(self.name_source.is_directory(id));
        };
        let then = history.object_at(id, seq)?;
        Ok(then.is_some_and(|stored| stored.object.kind == Kind::Directory))
    }

    /// Returns the name that an object lost by a commit that gave it another one.
    fn moved_from<'b>(
        &self,
        child: ObjectId,
        seq: Seq,
        to: &LinkName,
        removed_names: &[&'b LinkName],
    ) -> Option<&'b LinkName> {
        let known = self.names.get(&child)?;
        let lost = |at: &LinkName| known.iter().any(|named| named.at == *at && named.until == seq);
        removed_names.iter().copied().find(|at| *at != to && lost(at))
    }
}

/// Returns the objects whose names are needed.
fn referenced_objects(change: &Mutation) -> Vec<ObjectId> {
    match change {
        Mutation::Make(_) => Vec::new(),
        Mutation::Link(at, child) => vec![at.parent, *child],
        Mutation::Unlink(at) => vec![at.parent],
        set => set.sets().into_iter().collect(),
    }
}

fn made(change: &Mutation) -> Option<(ObjectId, &Object)> {
    match change {
        Mutation::Make(object) => Some((object.id, object)),
        _ => None,
    }
}

fn removed(change: &Mutation) -> Option<&LinkName> {
    match change {
        Mutation::Unlink(at) => Some(at),
        _ => None,
    }
}
