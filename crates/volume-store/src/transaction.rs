//! The rules of a commit, shared by all engines: an engine reads and writes rows, this module decides what is allowed.
//!
//! A batch applies its transactions in memory. Each is checked against its preconditions and the invariants of the tree, and is
//! undone if it violates one; the engine then writes all changes at once, including superseded versions for the history.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use shunt_volume_types::id::{ObjectId, Seq};
use shunt_volume_types::object::{ChunkId, Field, Kind, LinkName, Object, VersionedObject};

use crate::validate::{MAX_XATTRS, XATTRS_TOO_LONG, are_too_long, validate, validate_all};
use crate::{ChunkLocation, Mutation, Rejected, StoreError, Transaction};

/// An object as an engine stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// The part that nodes see.
    pub stored: VersionedObject,
    /// Parent of a directory, for the cycle check.
    pub parent: Option<ObjectId>,
    /// Number of entries in a directory.
    pub names: u64,
}

/// Access to the rows before the batch.
pub(super) trait Rows {
    fn object(&mut self, id: ObjectId) -> Result<Option<Row>, StoreError>;
    fn link(&mut self, at: &LinkName) -> Result<Option<(ObjectId, Seq)>, StoreError>;
}

/// A row in the batch: its current value, whether it existed before, and whether it has to be written.
struct CachedRow<T> {
    now: Option<T>,
    was: bool,
    dirty: bool,
}

/// Applies transactions one after the other, in memory, on top of the engine's rows.
///
/// Keys are ordered: rows are then written in the order of the engine's trees, and the same batch is always the same sequence
/// of writes.
pub(super) struct Batch<'a, R> {
    rows: R,
    head: Seq,
    objects: BTreeMap<ObjectId, CachedRow<Row>>,
    links: BTreeMap<LinkName, CachedRow<(ObjectId, Seq)>>,
    undo_objects: Vec<(ObjectId, Option<Row>)>,
    undo_links: Vec<(LinkName, Option<(ObjectId, Seq)>)>,
    /// Objects whose names changed in this transaction, with the index of the last mutation that did.
    touched: BTreeMap<ObjectId, u32>,
    log: Vec<(Seq, &'a [Mutation])>,
    chunks: BTreeMap<ChunkId, &'a ChunkLocation>,
    past_objects: Vec<(VersionedObject, Seq)>,
    past_links: Vec<(LinkName, ObjectId, Seq, Seq)>,
}

/// The changes that an engine has to write.
pub(super) struct BatchChanges<'a> {
    /// The last commit.
    pub head: Seq,
    /// Objects to write; `true`: replaces a row.
    pub objects: Vec<(Row, bool)>,
    /// Objects to delete.
    pub deleted_objects: Vec<ObjectId>,
    /// Links to write; `true`: replaces a row.
    pub links: Vec<(LinkName, ObjectId, Seq, bool)>,
    /// Links to delete.
    pub deleted_links: Vec<LinkName>,
    /// New log entries.
    pub log: Vec<(Seq, &'a [Mutation])>,
    /// Chunk locations to add unless they exist.
    pub chunks: BTreeMap<ChunkId, &'a ChunkLocation>,
    /// Superseded versions, each with the commit that superseded it.
    pub past_objects: Vec<(VersionedObject, Seq)>,
    /// Removed or replaced links: name, object, since when, and the commit that ended it.
    pub past_links: Vec<(LinkName, ObjectId, Seq, Seq)>,
}

pub(super) enum Abort {
    Refused(Rejected),
    Store(StoreError),
}

impl From<StoreError> for Abort {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

pub(super) type Step<T = ()> = Result<T, Abort>;

fn invalid<T>(change: u32, why: &str) -> Step<T> {
    Err(Abort::Refused(Rejected::Invalid(change, why.to_owned())))
}

impl<'a, R: Rows> Batch<'a, R> {
    pub fn new(rows: R, head: Seq) -> Self {
        Self {
            rows,
            head,
            objects: BTreeMap::new(),
            links: BTreeMap::new(),
            undo_objects: Vec::new(),
            undo_links: Vec::new(),
            touched: BTreeMap::new(),
            log: Vec::new(),
            chunks: BTreeMap::new(),
            past_objects: Vec::new(),
            past_links: Vec::new(),
        }
    }

    /// Applies a transaction completely or not at all.
    pub fn item(&mut self, item: &'a Transaction) -> Result<Result<Seq, Rejected>, StoreError> {
        let seq = Seq(self.head.0 + 1);
        self.chunks.extend(item.chunks.iter().map(|(id, location)| (*id, location)));
        self.undo_objects.clear();
        self.undo_links.clear();
        self.touched.clear();
        match self.try_item(seq, item) {
            Ok(()) => {
                self.record_superseded(seq);
                self.head = seq;
                self.log.push((seq, &item.mutations));
                Ok(Ok(seq))
            }
            Err(Abort::Refused(refused)) => {
                self.roll_back();
                Ok(Err(refused))
            }
            Err(Abort::Store(error)) => Err(error),
        }
    }

    pub fn finish(self) -> BatchChanges<'a> {
        let mut written = BatchChanges {
            head: self.head,
            objects: Vec::new(),
            deleted_objects: Vec::new(),
            links: Vec::new(),
            deleted_links: Vec::new(),
            log: self.log,
            chunks: self.chunks,
            past_objects: self.past_objects,
            past_links: self.past_links,
        };
        for (id, held) in self.objects.into_iter().filter(|(_, held)| held.dirty) {
            match held.now {
                Some(row) => written.objects.push((row, held.was)),
                None if held.was => written.deleted_objects.push(id),
                None => {}
            }
        }
        for (at, held) in self.links.into_iter().filter(|(_, held)| held.dirty) {
            match held.now {
                Some((child, set)) => written.links.push((at, child, set, held.was)),
                None if held.was => written.deleted_links.push(at),
                None => {}
            }
        }
        written
    }

    /// Records the versions and links that an accepted transaction superseded: the first undo entry of each.
    fn record_superseded(&mut self, seq: Seq) {
        let mut seen = BTreeSet::new();
        for (id, before) in &self.undo_objects {
            let now = self.objects.get(id).and_then(|held| held.now.as_ref());
            let (true, Some(before)) = (seen.insert(*id), before) else { continue };
            let is_same = |now: &Row| {
                now.stored.object == before.stored.object
                    && now.stored.field_versions == before.stored.field_versions
            };
            if !now.is_some_and(is_same) {
                self.past_objects.push((before.stored.clone(), seq));
            }
        }
        let mut seen = BTreeSet::new();
        for (at, before) in &self.undo_links {
            let now = self.links.get(at).and_then(|held| held.now);
            if seen.insert(at)
                && let Some((child, set)) = *before
                && now != *before
            {
                self.past_links.push((at.clone(), child, set, seq));
            }
        }
    }

    fn try_item(&mut self, seq: Seq, item: &Transaction) -> Step {
        self.check_preconditions(&item.preconditions)?;
        if let Some(why) = validate_all(&item.mutations) {
            return invalid(0, why);
        }
        for (n, change) in item.mutations.iter().enumerate() {
            let n = n as u32;
            if let Some(why) = validate(change) {
                return invalid(n, why);
            }
            self.change(seq, n, change)?;
        }
        self.finish_item()
    }

    fn change(&mut self, seq: Seq, n: u32, change: &Mutation) -> Step {
        match change {
            Mutation::Make(object) => self.make(seq, n, object),
            Mutation::SetContent(id, content, modified) => {
                let row = self.changed(n, *id)?;
                if row.stored.object.kind != Kind::Regular {
                    return invalid(n, "only regular files have content");
                }
                row.stored.object.content = content.clone();
                row.stored.object.modified = *modified;
                row.set(Field::Content, seq);
                row.set(Field::Modified, seq);
                Ok(())
            }
            Mutation::SetMode(id, mode) => {
                let row = self.changed(n, *id)?;
                row.stored.object.mode = *mode;
                row.set(Field::Mode, seq);
                Ok(())
            }
            Mutation::SetOwner(id, owner) => {
                let row = self.changed(n, *id)?;
                row.stored.object.owner = *owner;
                row.set(Field::Owner, seq);
                Ok(())
            }
            Mutation::SetGroup(id, group) => {
                let row = self.changed(n, *id)?;
                row.stored.object.group = *group;
                row.set(Field::Group, seq);
                Ok(())
            }
            Mutation::SetModified(id, modified) => {
                let row = self.changed(n, *id)?;
                row.stored.object.modified = *modified;
                row.set(Field::Modified, seq);
                Ok(())
            }
            Mutation::SetXattr(id, name, value) => {
                let row = self.changed(n, *id)?;
                // Removed attributes count too: their versions are kept.
                if row.stored.field_versions.len().max(row.stored.object.xattrs.len()) >= MAX_XATTRS {
                    return invalid(n, "too many extended attributes");
                }
                match value {
                    Some(value) => row.stored.object.xattrs.insert(name.clone(), value.clone()),
                    None => row.stored.object.xattrs.remove(name),
                };
                // A removal is always allowed: an older version may have stored more.
                if value.is_some() && are_too_long(&row.stored.object.xattrs) {
                    return invalid(n, XATTRS_TOO_LONG);
                }
                row.set(Field::Xattr(name.clone()), seq);
                Ok(())
            }
            Mutation::Link(at, child) => self.add_link(seq, n, at, *child),
            Mutation::Unlink(at) => self.remove_link(n, at),
            Mutation::Seal(_) => Ok(()),
        }
    }

    fn make(&mut self, seq: Seq, n: u32, object: &Object) -> Step {
        if self.object(object.id)?.is_some() {
            return invalid(n, "the object exists already");
        }
        let stored = VersionedObject {
            object: object.clone(),
            created: seq,
            field_versions: BTreeMap::new(),
            links: 0,
        };
        self.put_object(object.id, Some(Row { stored, parent: None, names: 0 }));
        self.touched.insert(object.id, n);
        Ok(())
    }

    fn add_link(&mut self, seq: Seq, n: u32, at: &LinkName, child: ObjectId) -> Step {
        if child == ObjectId::ROOT {
            return invalid(n, "the root directory cannot have a name");
        }
        if self.link(at)?.is_some() {
            return invalid(n, "the name exists already");
        }
        let parent = self.changed(n, at.parent)?;
        if parent.stored.object.kind != Kind::Directory {
            return invalid(n, "the parent is not a directory");
        }
        parent.names += 1;
        let row = self.changed(n, child)?;
        if row.stored.object.kind == Kind::Directory {
            if row.stored.links > 0 {
                return invalid(n, "a directory can have only one name: remove the other first");
            }
            row.parent = Some(at.parent);
        }
        let Some(links) = row.stored.links.checked_add(1) else { return invalid(n, "too many links") };
        row.stored.links = links;
        self.touched.insert(child, n);
        self.put_link(at.clone(), Some((child, seq)));
        Ok(())
    }

    fn remove_link(&mut self, n: u32, at: &LinkName) -> Step {
        let Some((child, _)) = self.link(at)? else { return invalid(n, "no such name") };
        let parent = self.changed(n, at.parent)?;
        parent.names = parent.names.saturating_sub(1);
        let row = self.changed(n, child)?;
        row.stored.links = row.stored.links.saturating_sub(1);
        if row.stored.object.kind == Kind::Directory {
            row.parent = None;
        }
        self.touched.insert(child, n);
        self.put_link(at.clone(), None);
        Ok(())
    }

    /// Checks and completes an item after all mutations: deletes objects without names, rejects non-empty directories and
    /// cycles.
    fn finish_item(&mut self) -> Step {
        // Ancestors already known to be free of cycles, so that nested directories are walked once.
        let mut sound = HashSet::new();
        for (id, n) in std::mem::take(&mut self.touched) {
            let Some(row) = self.object(id)? else { continue };
            let (links, names) = (row.stored.links, row.names);
            if links == 0 && names > 0 {
                return invalid(n, "the directory is not empty");
            }
            if links == 0 {
                self.put_object(id, None);
            } else if names > 0 && self.is_below_itself(id, &mut sound)? {
                return Err(Abort::Refused(Rejected::Cycle));
            }
        }
        Ok(())
    }

    /// Reports whether the chain of parents of an object is a cycle; otherwise adds its members to `sound`.
    fn is_below_itself(&mut self, id: ObjectId, sound: &mut HashSet<ObjectId>) -> Result<bool, StoreError> {
        let (mut at, mut way) = (id, HashSet::new());
        while !sound.contains(&at) {
            if !way.insert(at) {
                return Ok(true);
            }
            match self.object(at)?.and_then(|row| row.parent) {
                Some(above) => at = above,
                None => break,
            }
        }
        sound.extend(way);
        Ok(false)
    }

    pub(super) fn object(&mut self, id: ObjectId) -> Result<Option<&Row>, StoreError> {
        if !self.objects.contains_key(&id) {
            let now = self.rows.object(id)?;
            self.objects.insert(id, CachedRow { was: now.is_some(), now, dirty: false });
        }
        Ok(self.objects.get(&id).and_then(|held| held.now.as_ref()))
    }

    pub(super) fn link(&mut self, at: &LinkName) -> Result<Option<(ObjectId, Seq)>, StoreError> {
        if let Some(held) = self.links.get(at) {
            return Ok(held.now);
        }
        let now = self.rows.link(at)?;
        self.links.insert(at.clone(), CachedRow { was: now.is_some(), now, dirty: false });
        Ok(now)
    }

    /// Returns the row of an object for modification, and records its old value for undo.
    fn changed(&mut self, n: u32, id: ObjectId) -> Step<&mut Row> {
        if self.object(id)?.is_none() {
            return invalid(n, "no such object");
        }
        let held = self.objects.get_mut(&id).and_then(|held| {
            held.dirty = true;
            held.now.as_mut()
        });
        let Some(row) = held else { return invalid(n, "no such object") };
        self.undo_objects.push((id, Some(row.clone())));
        Ok(row)
    }

    fn put_object(&mut self, id: ObjectId, now: Option<Row>) {
        let held = self.objects.entry(id).or_insert(CachedRow { now: None, was: false, dirty: true });
        held.dirty = true;
        self.undo_objects.push((id, std::mem::replace(&mut held.now, now)));
    }

    fn put_link(&mut self, at: LinkName, now: Option<(ObjectId, Seq)>) {
        let held = self.links.entry(at.clone()).or_insert(CachedRow { now: None, was: false, dirty: true });
        held.dirty = true;
        self.undo_links.push((at, std::mem::replace(&mut held.now, now)));
    }

    fn roll_back(&mut self) {
        while let Some((id, before)) = self.undo_objects.pop() {
            if let Some(held) = self.objects.get_mut(&id) {
                held.now = before;
            }
        }
        while let Some((at, before)) = self.undo_links.pop() {
            if let Some(held) = self.links.get_mut(&at) {
                held.now = before;
            }
        }
    }
}

impl Row {
    fn set(&mut self, field: Field, seq: Seq) {
        if seq != self.stored.created {
            self.stored.field_versions.insert(field, seq);
        }
    }
}
