//! In-memory local and base trees of a node, indexed for every query that they answer.

use std::collections::{BTreeMap, BTreeSet};

use rustix::io::Errno;
use shunt_volume::id::{NodeName, ObjectId, OwnerId, Seq};
use shunt_volume::merge::{
    Changes, Conflict, DentryKey, DirtySet, IdAllocator, Ino, PlanError, PushPlan, ROOT, Snapshot, Tree,
    Trees, UploadSet, apply_entry, push, resync,
};
use shunt_volume::object::{Content, Kind, LinkName, Object, Time, VersionedObject};
use shunt_volume::store::{LogEntry, Mutation};

/// First object id of a chain.
pub const FIRST: u64 = 1 << 32;

pub fn chain(n: u64) -> ObjectId {
    ObjectId(u128::from(FIRST + n))
}

/// Returns the dentry of a directory of the chain in its parent.
pub fn name(n: u64) -> LinkName {
    let parent = if n == 0 { ObjectId::ROOT } else { chain(n - 1) };
    LinkName { parent, name: b"d".to_vec() }
}

fn object(id: ObjectId, kind: Kind) -> Object {
    Object {
        id,
        kind,
        mode: 0o755,
        owner: OwnerId(0),
        group: OwnerId(0),
        modified: Time(0),
        target: Vec::new(),
        content: Content::empty(),
        xattrs: BTreeMap::new(),
    }
}

pub fn directory(id: ObjectId) -> Object {
    object(id, Kind::Directory)
}

/// Returns an object that is pushed without content.
pub fn file(id: ObjectId) -> Object {
    object(id, Kind::Fifo)
}

pub fn stored(object: Object) -> VersionedObject {
    VersionedObject { object, created: Seq(1), field_versions: BTreeMap::new(), links: 1 }
}

#[derive(Clone, Default)]
pub struct IndexedTree {
    local: BTreeMap<Ino, Object>,
    base: BTreeMap<Ino, VersionedObject>,
    nums: BTreeMap<ObjectId, Ino>,
    links: BTreeMap<DentryKey, Ino>,
    names: BTreeMap<Ino, BTreeSet<DentryKey>>,
    base_links: BTreeMap<DentryKey, (Ino, Seq)>,
    base_names: BTreeMap<Ino, BTreeSet<DentryKey>>,
    conflicts: BTreeMap<DentryKey, Conflict>,
    sides: BTreeMap<Ino, BTreeSet<DentryKey>>,
    next: InoAllocator,
    seq: u64,
}

#[derive(Clone, Default)]
pub struct InoAllocator(u64);

impl IdAllocator for InoAllocator {
    fn num(&mut self) -> Ino {
        self.0 += 1;
        self.0
    }

    fn id(&mut self) -> ObjectId {
        self.0 += 1;
        ObjectId(1 << 100 | u128::from(self.0))
    }
}

fn lead(
    names: &mut BTreeMap<Ino, BTreeSet<DentryKey>>,
    at: &DentryKey,
    before: Option<Ino>,
    now: Option<Ino>,
) {
    if let Some(before) = before
        && let Some(all) = names.get_mut(&before)
    {
        all.remove(at);
    }
    if let Some(now) = now {
        names.entry(now).or_default().insert(at.clone());
    }
}

impl IndexedTree {
    pub fn new() -> Self {
        let root = stored(directory(ObjectId::ROOT));
        let mut deep = Self { next: InoAllocator(ROOT), ..Self::default() };
        deep.nums.insert(ObjectId::ROOT, ROOT);
        deep.local.insert(ROOT, root.object.clone());
        deep.base.insert(ROOT, root);
        deep
    }

    pub fn set_here(&mut self, at: DentryKey, now: Option<Ino>) {
        let before = match now {
            Some(now) => self.links.insert(at.clone(), now),
            None => self.links.remove(&at),
        };
        lead(&mut self.names, &at, before, now);
    }

    pub fn make_here(&mut self, parent: Ino, name: &str, object: Object) -> Ino {
        let num = self.next.num();
        self.nums.insert(object.id, num);
        self.local.insert(num, object);
        self.set_here(DentryKey { parent, name: name.into() }, Some(num));
        num
    }

    pub fn make_chain_here(&mut self, deep: u64) {
        let mut at = ROOT;
        for n in 0..deep {
            at = self.make_here(at, "d", directory(chain(n)));
        }
    }

    /// Removes everything locally.
    pub fn unlink_here_all(&mut self) {
        self.links.clear();
        self.names.clear();
    }

    /// Returns the depth of a tree in which each directory has one name.
    pub fn depth(&self, tree: Tree) -> u64 {
        let (mut at, mut depth) = (ROOT, 0);
        while let Some((_, child)) = self.children(tree, at).unwrap().into_iter().next() {
            (at, depth) = (child, depth + 1);
        }
        depth
    }

    pub fn objects(&self) -> usize {
        self.local.len()
    }

    pub fn in_conflict(&self) -> impl Iterator<Item = &DentryKey> {
        self.conflicts.keys()
    }

    pub fn plan(&mut self, plan: impl FnOnce(&Self, &mut InoAllocator) -> Result<Changes, PlanError>) {
        let mut next = self.next.clone();
        let changes = plan(self, &mut next).unwrap();
        self.next = next;
        self.apply(changes);
    }

    fn entry(&mut self, change: Vec<Mutation>) -> LogEntry {
        self.seq += 1;
        LogEntry { seq: Seq(self.seq), node: "other".parse().unwrap(), at: Time(0), change }
    }

    pub fn follow(&mut self, change: Vec<Mutation>) {
        let entry = self.entry(change);
        self.plan(|trees, fresh| apply_entry(trees, fresh, &entry, false));
    }

    pub fn follow_own(&mut self, change: Vec<Mutation>) {
        let entry = self.entry(change);
        self.plan(|trees, fresh| apply_entry(trees, fresh, &entry, true));
    }

    pub fn resync(&mut self, snapshot: &Snapshot) {
        self.plan(|trees, fresh| resync(trees, fresh, &[], snapshot, &NodeName::store()));
    }

    /// Returns the names that differ from the base tree.
    pub fn todo(&self) -> DirtySet {
        let places: BTreeSet<&DentryKey> = self.links.keys().chain(self.base_links.keys()).collect();
        let differs =
            |at: &&DentryKey| self.links.get(*at) != self.base_links.get(*at).map(|(child, _)| child);
        DirtySet { names: places.into_iter().filter(differs).cloned().collect(), objects: Vec::new() }
    }

    pub fn push(&self, todo: &DirtySet) -> PushPlan {
        push(self, todo, 1024, &mut UploadSet::default()).unwrap()
    }

    /// Pushes all changes as a node does, with a limit of changes per round. Returns the number of commits.
    pub fn push_all(&mut self, backwards: bool) -> u64 {
        let mut names = self.todo().names;
        if backwards {
            names.reverse();
        }
        let mut sent = 0;
        while !names.is_empty() {
            let todo = DirtySet { names: names.iter().take(1024).cloned().collect(), objects: Vec::new() };
            let planned = self.push(&todo);
            assert_ne!(planned.items, []);
            sent += planned.items.len() as u64;
            planned.items.into_iter().for_each(|item| self.follow_own(item.mutations));
            names.retain(|at| self.links.get(at) != self.base_links.get(at).map(|(child, _)| child));
        }
        sent
    }

    fn apply(&mut self, changes: Changes) {
        for num in changes.objects.keys() {
            if let Some(old) = self.local.remove(num)
                && self.nums.get(&old.id) == Some(num)
            {
                self.nums.remove(&old.id);
            }
            self.base.remove(num);
        }
        for (num, (local, base)) in changes.objects {
            if let Some(local) = local {
                self.nums.insert(local.id, num);
                self.local.insert(num, local);
            }
            if let Some(base) = base {
                self.base.insert(num, base);
            }
        }
        for (at, (local, base)) in changes.links {
            self.set_here(at.clone(), local);
            let before = match base {
                Some(base) => self.base_links.insert(at.clone(), base),
                None => self.base_links.remove(&at),
            };
            lead(&mut self.base_names, &at, before.map(|(num, _)| num), base.map(|(num, _)| num));
        }
        for (at, conflict) in changes.conflicts {
            let now = conflict.as_ref().and_then(|one| one.local);
            let before = match conflict {
                Some(conflict) => self.conflicts.insert(at.clone(), conflict),
                None => self.conflicts.remove(&at),
            };
            lead(&mut self.sides, &at, before.and_then(|one| one.local), now);
        }
    }
}

fn within<T>(all: &BTreeMap<DentryKey, T>, parent: Ino) -> impl Iterator<Item = (&DentryKey, &T)> {
    let first = |parent| DentryKey { parent, name: Vec::new() };
    all.range(first(parent)..first(parent + 1))
}

fn listed(names: &BTreeMap<Ino, BTreeSet<DentryKey>>, num: Ino) -> Vec<DentryKey> {
    names.get(&num).into_iter().flatten().cloned().collect()
}

impl Trees for IndexedTree {
    fn local(&self, num: Ino) -> Result<Option<Object>, Errno> {
        Ok(self.local.get(&num).cloned())
    }

    fn base(&self, num: Ino) -> Result<Option<VersionedObject>, Errno> {
        Ok(self.base.get(&num).cloned())
    }

    fn num(&self, id: ObjectId) -> Result<Option<Ino>, Errno> {
        Ok(self.nums.get(&id).copied())
    }

    fn link(&self, tree: Tree, at: &DentryKey) -> Result<Option<(Ino, Seq)>, Errno> {
        Ok(match tree {
            Tree::Local => self.links.get(at).map(|num| (*num, Seq(0))),
            Tree::Base => self.base_links.get(at).copied(),
        })
    }

    fn names(&self, tree: Tree, num: Ino) -> Result<Vec<DentryKey>, Errno> {
        Ok(match tree {
            Tree::Local => listed(&self.names, num),
            Tree::Base => listed(&self.base_names, num),
        })
    }

    fn children(&self, tree: Tree, parent: Ino) -> Result<Vec<(Vec<u8>, Ino)>, Errno> {
        Ok(match tree {
            Tree::Local => within(&self.links, parent).map(|(at, num)| (at.name.clone(), *num)).collect(),
            Tree::Base => {
                within(&self.base_links, parent).map(|(at, (num, _))| (at.name.clone(), *num)).collect()
            }
        })
    }

    fn conflict(&self, at: &DentryKey) -> Result<Option<Conflict>, Errno> {
        Ok(self.conflicts.get(at).cloned())
    }

    fn version(&self, _num: Ino) -> Result<u64, Errno> {
        Ok(0)
    }

    fn sides(&self, local: Ino) -> Result<Vec<DentryKey>, Errno> {
        Ok(listed(&self.sides, local))
    }

    fn conflicts_in(&self, parent: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(within(&self.conflicts, parent).map(|(at, _)| at.name.clone()).collect())
    }

    fn conflicts(&self) -> Result<Vec<DentryKey>, Errno> {
        Ok(self.conflicts.keys().cloned().collect())
    }
}
