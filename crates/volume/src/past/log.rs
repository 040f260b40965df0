//! The log, read backwards, with paths.

use std::collections::{HashMap, HashSet};

use crate::id::{NodeName, ObjectId, Seq};
use crate::object::{Kind, LinkName, Object, Time};
use crate::store::{Entry, MetaStore, Mutation, StoreError};

/// Entries that are asked for at once.
const PAGE: usize = 512;

/// The longest way up that is followed.
const DEEPEST: usize = 4096;

/// Where objects are now.
pub trait Places {
    /// A name of an object; `None`: it has none, or is not known.
    fn place(&self, id: ObjectId) -> Option<LinkName>;

    /// Whether it is a directory: nobody wants to hear of its times, which change with its names.
    fn is_directory(&self, id: ObjectId) -> bool;
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
    pub deeds: Vec<Deed>,
}

/// Something that was done to a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    /// What.
    pub what: What,
    /// The path from the top directory, as it was. `None`: of an object whose names are not known any more.
    pub path: Option<Vec<u8>>,
}

/// What is done to things with names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
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
    /// Where objects were before what was read, as far as that differs.
    moved: HashMap<ObjectId, Option<LinkName>>,
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
        Ok(Self { store, places, before: Seq(store.head()?.0 + 1), moved: HashMap::new() })
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
        // What is gone by now had the names that it was given.
        for entry in &entries {
            for change in &entry.change {
                if let Mutation::Link(at, child) = change
                    && !self.moved.contains_key(child)
                    && self.places.place(*child).is_none()
                {
                    self.moved.insert(*child, Some(at.clone()));
                }
            }
        }
        self.before = Seq(first + 1);
        Ok(entries.into_iter().rev().map(|entry| self.commit(entry)).collect())
    }

    fn place(&self, id: ObjectId) -> Option<LinkName> {
        match self.moved.get(&id) {
            Some(place) => place.clone(),
            None => self.places.place(id),
        }
    }

    fn path(&self, id: ObjectId) -> Option<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = id;
        while at != ObjectId::ROOT {
            let place = self.place(at)?;
            if names.len() == DEEPEST {
                return None;
            }
            names.push(place.name);
            at = place.parent;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    fn path_at(&self, at: &LinkName) -> Option<Vec<u8>> {
        let mut path = self.path(at.parent)?;
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&at.name);
        Some(path)
    }

    fn commit(&mut self, entry: Entry) -> Commit {
        let made: HashMap<ObjectId, &Object> = entry.change.iter().filter_map(made).collect();
        let gone: Vec<&LinkName> = entry.change.iter().filter_map(removed).collect();
        let mut deeds = Vec::new();
        let mut from: HashSet<&LinkName> = HashSet::new();
        let mut before: HashMap<ObjectId, Option<LinkName>> = HashMap::new();
        let mut tell = |what, path| deeds.push(Deed { what, path });
        for change in &entry.change {
            let (id, what) = match change {
                Mutation::Make(_) | Mutation::Unlink(_) => continue,
                Mutation::Link(at, child) => {
                    let path = self.path_at(at);
                    match made.get(child) {
                        Some(object) => {
                            before.insert(*child, None);
                            tell(What::Made(object.kind), path);
                        }
                        None => match gone.iter().find(|gone| **gone != at && !from.contains(*gone)) {
                            Some(old) => {
                                from.insert(old);
                                before.insert(*child, Some((*old).clone()));
                                tell(What::Moved(self.path_at(old).unwrap_or_default()), path);
                            }
                            None => tell(What::Linked, path),
                        },
                    }
                    continue;
                }
                Mutation::SetContent(id, content, _) => (id, What::Written(content.size)),
                Mutation::SetMode(id, mode) => (id, What::Mode(*mode)),
                Mutation::SetOwner(id, owner) => (id, What::Owner(owner.0)),
                Mutation::SetGroup(id, group) => (id, What::Group(group.0)),
                Mutation::SetModified(id, _) if self.places.is_directory(*id) => continue,
                Mutation::SetModified(id, _) => (id, What::Touched),
                Mutation::SetXattr(id, name, _) => (id, What::Xattr(name.clone())),
            };
            tell(what, self.path(*id));
        }
        for at in gone {
            if !from.contains(at) {
                tell(What::Removed, self.path_at(at));
            }
        }
        // It goes with every other change.
        if deeds.iter().any(|deed| deed.what != What::Touched) {
            deeds.retain(|deed| deed.what != What::Touched);
        }
        self.moved.extend(before);
        Commit { seq: entry.seq, at: entry.at, node: entry.node, deeds }
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
