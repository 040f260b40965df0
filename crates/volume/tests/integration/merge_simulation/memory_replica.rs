//! Minimal in-memory replica: both trees in full, and a copy of them that survives a crash.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use rustix::io::Errno;
use shunt_volume::id::{NodeName, ObjectId, Seq};
use shunt_volume::merge::{
    Changes, Conflict, DentryKey, DirtySet, FileUpload, IdAllocator, Ino, Plan, PlanError, ROOT, Tree, Trees,
};
use shunt_volume::object::{Object, Time, VersionedObject};
use shunt_volume::sync::{LogFingerprint, Outbox, SyncError, SyncReplica};

#[derive(Debug, Clone, Default)]
pub struct TreeState {
    pub local: BTreeMap<Ino, Object>,
    pub base: BTreeMap<Ino, VersionedObject>,
    pub nums: BTreeMap<ObjectId, Ino>,
    pub links: BTreeMap<DentryKey, Ino>,
    pub base_links: BTreeMap<DentryKey, (Ino, Seq)>,
    pub conflicts: BTreeMap<DentryKey, Conflict>,
    pub cursor: Seq,
    pub mark: Option<LogFingerprint>,
    pub next: Ino,
    pub versions: BTreeMap<Ino, u64>,
    pub outbox: Option<Outbox>,
    /// Contents that a user wrote here, and those that a user here saw and deleted or overwrote, since the last commit.
    pub wrote: BTreeSet<u64>,
    pub ended: BTreeSet<u64>,
}

pub struct MemoryReplica {
    pub name: NodeName,
    pub current: RefCell<TreeState>,
    durable: RefCell<TreeState>,
    ids: Cell<u128>,
    /// Number of persistence steps until the next crash.
    pub crash_in: Cell<Option<u32>>,
}

impl MemoryReplica {
    pub fn new(name: &str, ids: u128, root: VersionedObject) -> Self {
        let mut state = TreeState { next: 2, ..TreeState::default() };
        state.nums.insert(root.object.id, ROOT);
        state.local.insert(ROOT, root.object.clone());
        state.base.insert(ROOT, root);
        Self {
            name: name.parse().unwrap(),
            durable: RefCell::new(state.clone()),
            current: RefCell::new(state),
            ids: Cell::new(ids),
            crash_in: Cell::new(None),
        }
    }

    pub fn new_id(&self) -> ObjectId {
        self.ids.set(self.ids.get() + 1);
        ObjectId(self.ids.get())
    }

    /// Makes the current state durable. Returns the contents written and ended since the last commit.
    pub fn commit(&self) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let mut now = self.current.borrow_mut();
        *self.durable.borrow_mut() = now.clone();
        let done = (std::mem::take(&mut now.wrote), std::mem::take(&mut now.ended));
        let mut durable = self.durable.borrow_mut();
        durable.wrote.clear();
        durable.ended.clear();
        done
    }

    pub fn crash(&self) {
        *self.current.borrow_mut() = self.durable.borrow().clone();
    }

    /// A crash point.
    fn point(&self) -> Result<(), Errno> {
        match self.crash_in.get() {
            Some(0) => return Err(Errno::IO),
            Some(n) => self.crash_in.set(Some(n - 1)),
            None => {}
        }
        Ok(())
    }

    /// Makes a transaction durable, with everything before it.
    pub fn lasts(&self) {
        *self.durable.borrow_mut() = self.current.borrow().clone();
    }
}

impl Trees for TreeState {
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
            Tree::Local => {
                self.links.iter().filter(|(_, child)| **child == num).map(|(at, _)| at.clone()).collect()
            }
            Tree::Base => self
                .base_links
                .iter()
                .filter(|(_, (child, _))| *child == num)
                .map(|(at, _)| at.clone())
                .collect(),
        })
    }

    fn children(&self, tree: Tree, parent: Ino) -> Result<Vec<(Vec<u8>, Ino)>, Errno> {
        let inside = |at: &DentryKey| at.parent == parent;
        Ok(match tree {
            Tree::Local => self
                .links
                .iter()
                .filter(|(at, _)| inside(at))
                .map(|(at, num)| (at.name.clone(), *num))
                .collect(),
            Tree::Base => self
                .base_links
                .iter()
                .filter(|(at, _)| inside(at))
                .map(|(at, (num, _))| (at.name.clone(), *num))
                .collect(),
        })
    }

    fn conflict(&self, at: &DentryKey) -> Result<Option<Conflict>, Errno> {
        Ok(self.conflicts.get(at).cloned())
    }

    fn version(&self, num: Ino) -> Result<u64, Errno> {
        Ok(self.versions.get(&num).copied().unwrap_or(0))
    }

    fn sides(&self, local: Ino) -> Result<Vec<DentryKey>, Errno> {
        Ok(self
            .conflicts
            .iter()
            .filter(|(_, one)| one.local == Some(local))
            .map(|(at, _)| at.clone())
            .collect())
    }

    fn conflicts_in(&self, parent: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(self.conflicts.keys().filter(|at| at.parent == parent).map(|at| at.name.clone()).collect())
    }

    fn conflicts(&self) -> Result<Vec<DentryKey>, Errno> {
        Ok(self.conflicts.keys().cloned().collect())
    }
}

struct InoAllocator<'a>(&'a mut Ino, &'a MemoryReplica);

impl IdAllocator for InoAllocator<'_> {
    fn num(&mut self) -> Ino {
        *self.0 += 1;
        *self.0 - 1
    }

    fn id(&mut self) -> ObjectId {
        self.1.new_id()
    }
}

impl TreeState {
    pub fn apply(&mut self, changes: Changes) {
        for (num, (local, base)) in changes.objects {
            if let Some(old) = self.local.remove(&num)
                && self.nums.get(&old.id) == Some(&num)
            {
                self.nums.remove(&old.id);
            }
            if let Some(local) = local {
                self.local.insert(num, local);
            }
            self.base.remove(&num);
            if let Some(base) = base {
                self.base.insert(num, base);
            }
        }
        self.nums = self.local.iter().map(|(num, object)| (object.id, *num)).collect();
        for (at, (local, base)) in changes.links {
            self.links.remove(&at);
            if let Some(local) = local {
                self.links.insert(at.clone(), local);
            }
            self.base_links.remove(&at);
            if let Some(base) = base {
                self.base_links.insert(at, base);
            }
        }
        for (at, conflict) in changes.conflicts {
            self.conflicts.remove(&at);
            if let Some(conflict) = conflict {
                self.conflicts.insert(at, conflict);
            }
        }
    }
}

impl SyncReplica for &MemoryReplica {
    fn now(&self) -> Time {
        Time(0)
    }

    fn fingerprint(&self) -> Result<Option<LogFingerprint>, Errno> {
        Ok(self.current.borrow().mark)
    }

    fn set_fingerprint(&self, mark: LogFingerprint) -> Result<(), Errno> {
        self.current.borrow_mut().mark = Some(mark);
        Ok(())
    }

    fn cursor(&self) -> Result<Seq, Errno> {
        Ok(self.current.borrow().cursor)
    }

    fn read(&self, read: &mut dyn FnMut(&dyn Trees) -> Result<(), PlanError>) -> Result<(), PlanError> {
        read(&*self.current.borrow())
    }

    fn change(&self, cursor: Option<Seq>, plan: &mut Plan<'_>) -> Result<(), PlanError> {
        self.point()?;
        let mut next = self.current.borrow().next;
        let changes = plan(&*self.current.borrow(), &mut InoAllocator(&mut next, self))?;
        crate::merge_simulation::log(|| format!("{} at {cursor:?}: {changes:?}", self.name));
        let mut now = self.current.borrow_mut();
        now.next = next;
        now.apply(changes);
        now.cursor = cursor.unwrap_or(now.cursor);
        drop(now);
        self.lasts();
        Ok(())
    }

    fn dirty_set(&self, _after: i64, _most: usize) -> Result<(DirtySet, Option<i64>), Errno> {
        let now = self.current.borrow();
        let places: BTreeSet<&DentryKey> = now.links.keys().chain(now.base_links.keys()).collect();
        let names = places
            .into_iter()
            .filter(|at| now.links.get(at).copied() != now.base_links.get(at).map(|(child, _)| *child))
            .cloned()
            .collect();
        let differs = |num: &&Ino| {
            now.base.get(num).is_some_and(|base| now.local.get(num).is_some_and(|here| *here != base.object))
        };
        Ok((DirtySet { names, objects: now.local.keys().filter(differs).copied().collect() }, None))
    }

    fn upload(&self, files: Vec<(Ino, Object)>) -> Result<Vec<FileUpload>, SyncError> {
        let sent = |(num, object): (Ino, Object)| {
            Ok((num, Some((self.current.borrow().version(num)?, (object.content, Vec::new())))))
        };
        files.into_iter().map(sent).collect()
    }

    fn outbox(&self) -> Result<Option<Outbox>, Errno> {
        Ok(self.current.borrow().outbox.clone())
    }

    fn set_outbox(&self, outbox: Option<&Outbox>) -> Result<(), Errno> {
        self.point()?;
        crate::merge_simulation::log(|| format!("{} sends {outbox:?}", self.name));
        self.current.borrow_mut().outbox = outbox.cloned();
        self.lasts();
        Ok(())
    }

    fn conflicts(&self) -> Result<Vec<DentryKey>, Errno> {
        Ok(self.current.borrow().conflicts.keys().cloned().collect())
    }
}
