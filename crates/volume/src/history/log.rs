//! The log, read backwards, with paths.

use std::collections::{HashMap, HashSet};

use crate::id::{NodeName, ObjectId, Seq};
use crate::object::{Kind, LinkName, Object, Time};
use crate::store::{LogEntry, MetaStore, Mutation, StoreError};

/// Entries that are asked for at once.
const PAGE: usize = 512;

/// Objects whose names are remembered from one page to the next.
const REMEMBERED: usize = 100_000;

/// The longest way up that is followed.
const DEEPEST: usize = 4096;

/// Where objects are now.
pub trait Places {
    /// Names of an object that the store has, with the commits that made them.
    fn names(&self, id: ObjectId) -> Vec<(LinkName, Seq)>;

    /// Whether it is a directory: nobody wants to hear of its times, which change with its names.
    fn is_directory(&self, id: ObjectId) -> bool;
}

/// A name that an object has, or had: since one commit, until another.
struct Named {
    at: LinkName,
    since: Seq,
    until: Seq,
}

/// An entry of the log, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its place.
    pub seq: Seq,
    /// When, by the clock of the store.
    pub at: Time,
    /// Whose.
    pub node: NodeName,
    /// None, where only times of directories were set.
    pub deeds: Vec<Operation>,
}

/// Something that was done to a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// What.
    pub what: OpKind,
    /// The path from the top directory, as it was. `None`: of an object whose names are not known any more.
    pub path: Option<Vec<u8>>,
}

/// What is done to things with names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpKind {
    /// Made.
    Made(Kind),
    /// Written: bytes that it holds since.
    Written(u64),
    /// Moved from another path.
    Moved(Vec<u8>),
    /// Another name of something that is there.
    Linked,
    /// A name removed.
    Removed,
    /// Permission bits.
    Mode(u16),
    /// The user.
    Owner(u32),
    /// The group.
    Group(u32),
    /// The time of modification, and nothing else.
    Touched,
    /// An extended attribute set, or removed.
    Xattr(Vec<u8>),
}

/// Reads the log from its end on, or from a place.
pub struct Reader<'a> {
    store: &'a dyn MetaStore,
    places: &'a dyn Places,
    /// What is later was read.
    before: Seq,
    /// What objects are called, as far as that was asked for.
    names: HashMap<ObjectId, Vec<Named>>,
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("before", &self.before).finish_non_exhaustive()
    }
}

impl<'a> Reader<'a> {
    /// The next commit is the last one.
    ///
    /// # Errors
    /// Those of the store.
    pub fn new(store: &'a dyn MetaStore, places: &'a dyn Places) -> Result<Self, StoreError> {
        Ok(Self { store, places, before: Seq(store.head()?.0 + 1), names: HashMap::new() })
    }

    /// The commits before those that were read, the latest first; none: that was all.
    ///
    /// # Errors
    /// Those of the store.
    pub fn earlier(&mut self) -> Result<Vec<Commit>, StoreError> {
        let last = self.before.0.saturating_sub(1);
        if last == 0 {
            return Ok(Vec::new());
        }
        let first = last.saturating_sub(PAGE as u64);
        let entries = match self.store.log_since(Seq(first), (last - first) as usize) {
            Err(StoreError::Forgotten(_)) => return Ok(Vec::new()),
            entries => entries?,
        };
        self.before = Seq(first + 1);
        let all = entries.iter().flat_map(|entry| &entry.change);
        self.know(&all.flat_map(spoken_of).collect::<HashSet<_>>())?;
        entries.into_iter().rev().map(|entry| self.commit(entry)).collect()
    }

    /// Asks for names that were not asked for yet.
    fn know(&mut self, ids: &HashSet<ObjectId>) -> Result<(), StoreError> {
        if self.names.len() > REMEMBERED {
            self.names.clear();
        }
        let new: Vec<ObjectId> = ids.iter().copied().filter(|id| !self.names.contains_key(id)).collect();
        for id in &new {
            let now = self.places.names(*id).into_iter();
            let now = now.map(|(at, since)| Named { at, since, until: Seq(u64::MAX) });
            self.names.insert(*id, now.collect());
        }
        let Some(history) = self.store.history().filter(|_| !new.is_empty()) else { return Ok(()) };
        for past in history.past_names(&new)? {
            let named = Named { at: past.link.at, since: past.link.set, until: past.until };
            self.names.entry(past.link.child).or_default().push(named);
        }
        Ok(())
    }

    /// The path of an object after a commit.
    fn path(&mut self, id: ObjectId, seq: Seq) -> Result<Option<Vec<u8>>, StoreError> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = id;
        while at != ObjectId::ROOT {
            self.know(&HashSet::from([at]))?;
            let known = self.names.get(&at).into_iter().flatten();
            let Some(named) =
                known.filter(|named| named.since <= seq && seq < named.until).min_by_key(|named| named.since)
            else {
                return Ok(None);
            };
            if names.len() == DEEPEST {
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
        let gone: Vec<&LinkName> = entry.change.iter().filter_map(removed).collect();
        let mut from: HashSet<&LinkName> = HashSet::new();
        let mut deeds = Vec::new();
        for change in &entry.change {
            let (id, what) = match change {
                Mutation::Make(_) | Mutation::Unlink(_) | Mutation::Seal(_) => continue,
                Mutation::Link(at, child) => {
                    let what = match (made.get(child), self.moved_from(*child, now, at, &gone)) {
                        (Some(object), _) => OpKind::Made(object.kind),
                        (None, Some(old)) => {
                            from.insert(old);
                            OpKind::Moved(self.path_at(old, before)?.unwrap_or_else(|| old.name.clone()))
                        }
                        (None, None) => OpKind::Linked,
                    };
                    deeds.push(Operation { what, path: self.path_at(at, now)? });
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
            deeds.push(Operation { what, path: self.path(*id, now)? });
        }
        for at in gone {
            if !from.contains(at) {
                deeds.push(Operation { what: OpKind::Removed, path: self.path_at(at, before)? });
            }
        }
        // It goes with every other change.
        if deeds.iter().any(|deed| deed.what != OpKind::Touched) {
            deeds.retain(|deed| deed.what != OpKind::Touched);
        }
        Ok(Commit { seq: entry.seq, at: entry.at, node: entry.node, deeds })
    }

    /// Also of one that is gone.
    fn is_directory(&self, id: ObjectId, seq: Seq) -> Result<bool, StoreError> {
        let Some(history) = self.store.history().filter(|_| !self.places.is_directory(id)) else {
            return Ok(self.places.is_directory(id));
        };
        let then = history.object_at(id, seq)?;
        Ok(then.is_some_and(|stored| stored.object.kind == Kind::Directory))
    }

    /// The name that an object lost by a commit which gave it another one.
    fn moved_from<'b>(
        &self,
        child: ObjectId,
        seq: Seq,
        to: &LinkName,
        gone: &[&'b LinkName],
    ) -> Option<&'b LinkName> {
        let known = self.names.get(&child)?;
        let lost = |at: &LinkName| known.iter().any(|named| named.at == *at && named.until == seq);
        gone.iter().copied().find(|at| *at != to && lost(at))
    }
}

/// Objects whose names are asked for.
fn spoken_of(change: &Mutation) -> Vec<ObjectId> {
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
