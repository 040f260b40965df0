//! The uncommitted result of a merge: an in-memory overlay of changes over the stored trees. Reads see the overlay first. Nothing
//! is written; [`StagedTree::finish`] returns the changes for the replica to apply in one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::id::{NodeName, ObjectId, Seq};
use crate::merge::cycle::{CycleDetector, cycle_error};
use crate::merge::overlay::Overlay;
use crate::merge::{Conflict, ConflictKind, DentryKey, Ino, PlanError, ROOT, Tree, Trees};
use crate::object::{Kind, Object, VersionedObject};

/// Allocates inode numbers and object ids.
pub trait IdAllocator {
    /// Returns an inode number that was never used.
    fn num(&mut self) -> Ino;
    /// Returns a random id.
    fn id(&mut self) -> ObjectId;
}

/// The object that a name refers to: locally, and in the base with the commit that set the name.
pub(crate) type LinkTarget = (Option<Ino>, Option<(Ino, Seq)>);

/// The result of a merge: new values of everything that changed. Values that are equal in both trees are not dirty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Objects: local and in the base.
    pub objects: BTreeMap<Ino, (Option<Object>, Option<VersionedObject>)>,
    /// Names: local and in the base.
    pub links: BTreeMap<DentryKey, LinkTarget>,
    /// Conflicts.
    pub conflicts: BTreeMap<DentryKey, Option<Conflict>>,
}

/// Lists inode numbers, ids and names, but no contents.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (num, (here, agreed)) in &self.objects {
            write!(f, " {num}=")?;
            match here {
                Some(object) => write!(f, "{}", object.id)?,
                None => f.write_str("none")?,
            }
            f.write_str(if agreed.is_some() { "+" } else { "" })?;
        }
        for (DentryKey { parent, name }, (here, agreed)) in &self.links {
            let agreed = agreed.map(|(child, _)| child);
            write!(f, " {parent}/{}:{}|{}", name.escape_ascii(), DisplayedIno(*here), DisplayedIno(agreed))?;
        }
        for (DentryKey { parent, name }, conflict) in &self.conflicts {
            write!(f, " {parent}/{}!", name.escape_ascii())?;
            match conflict {
                Some(one) => write!(f, "{}:{}", one.kind.as_str(), DisplayedIno(one.local))?,
                None => f.write_str("none")?,
            }
        }
        Ok(())
    }
}

struct DisplayedIno(Option<Ino>);

impl fmt::Display for DisplayedIno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(num) => write!(f, "{num}"),
            None => f.write_str("none"),
        }
    }
}

/// The trees with staged changes.
pub(crate) struct StagedTree<'a> {
    trees: &'a dyn Trees,
    fresh: &'a mut dyn IdAllocator,
    /// Author of the changes being merged, recorded as the other side of conflicts.
    pub(super) author: NodeName,
    local: BTreeMap<Ino, Option<Object>>,
    base: BTreeMap<Ino, Option<VersionedObject>>,
    nums: BTreeMap<ObjectId, Option<Ino>>,
    local_links: Overlay<Ino>,
    base_links: Overlay<(Ino, Seq)>,
    conflicts: Overlay<Conflict>,
    /// Objects created by the entry that is being applied: users have not seen their inode numbers.
    pub(super) created: BTreeSet<Ino>,
    /// Objects removed from the store that are still to be processed, each with the local names at which the store has another
    /// object now.
    pub(super) deletion_candidates: BTreeMap<Ino, Vec<DentryKey>>,
    /// Locations of directories that lost their names, regardless of conflicts: `None` while the store's names are being
    /// merged, since a directory may get one of those; then the former locations, where conflicts may keep the directories.
    detached_dirs: BTreeMap<Ino, Option<DentryKey>>,
    /// Detached directories by parent, as (parent, directory).
    detached_by_parent: BTreeSet<(Ino, Ino)>,
    /// Cache of all names in conflict.
    in_conflict: Option<BTreeSet<DentryKey>>,
    /// Counts names that were linked or came into conflict.
    pub(super) link_generation: u64,
    /// New objects of the store that were identified with local ones.
    alias: BTreeMap<Ino, Ino>,
    /// The local objects of `alias`.
    identified: BTreeSet<Ino>,
}

pub(super) type MergeResult<T = ()> = Result<T, PlanError>;

impl<'a> StagedTree<'a> {
    /// Starts without changes; `author` made the changes that are merged.
    pub fn new(trees: &'a dyn Trees, fresh: &'a mut dyn IdAllocator, author: NodeName) -> Self {
        Self {
            trees,
            fresh,
            author,
            local: BTreeMap::new(),
            base: BTreeMap::new(),
            nums: BTreeMap::new(),
            local_links: Overlay::default(),
            base_links: Overlay::default(),
            conflicts: Overlay::default(),
            created: BTreeSet::new(),
            deletion_candidates: BTreeMap::new(),
            detached_dirs: BTreeMap::new(),
            detached_by_parent: BTreeSet::new(),
            in_conflict: None,
            link_generation: 0,
            alias: BTreeMap::new(),
            identified: BTreeSet::new(),
        }
    }

    /// Returns the staged changes.
    ///
    /// # Errors
    /// [`PlanError::Read`].
    pub fn finish(self) -> MergeResult<Changes> {
        let mut changes = Changes { conflicts: self.conflicts.all().clone(), ..Changes::default() };
        let nums: BTreeSet<Ino> = self.local.keys().chain(self.base.keys()).copied().collect();
        for num in nums {
            changes.objects.insert(num, (self.local(num)?, self.base(num)?));
        }
        let places: BTreeSet<&DentryKey> =
            self.local_links.all().keys().chain(self.base_links.all().keys()).collect();
        for at in places {
            changes.links.insert(at.clone(), (self.link(at)?, self.base_link(at)?));
        }
        Ok(changes)
    }

    pub(super) fn local(&self, num: Ino) -> MergeResult<Option<Object>> {
        match self.local.get(&num) {
            Some(object) => Ok(object.clone()),
            None => Ok(self.trees.local(num)?),
        }
    }

    pub(super) fn base(&self, num: Ino) -> MergeResult<Option<VersionedObject>> {
        match self.base.get(&num) {
            Some(stored) => Ok(stored.clone()),
            None => Ok(self.trees.base(num)?),
        }
    }

    pub(super) fn num(&self, id: ObjectId) -> MergeResult<Option<Ino>> {
        match self.nums.get(&id) {
            Some(num) => Ok(*num),
            None => Ok(self.trees.num(id)?),
        }
    }

    pub(super) fn link(&self, at: &DentryKey) -> MergeResult<Option<Ino>> {
        match self.local_links.get(at) {
            Some(child) => Ok(*child),
            None => Ok(self.trees.link(Tree::Local, at)?.map(|(child, _)| child)),
        }
    }

    pub(super) fn base_link(&self, at: &DentryKey) -> MergeResult<Option<(Ino, Seq)>> {
        match self.base_links.get(at) {
            Some(link) => Ok(*link),
            None => Ok(self.trees.link(Tree::Base, at)?),
        }
    }

    pub(super) fn conflict(&self, at: &DentryKey) -> MergeResult<Option<Conflict>> {
        match self.conflicts.get(at) {
            Some(conflict) => Ok(conflict.clone()),
            None => Ok(self.trees.conflict(at)?),
        }
    }

    pub(super) fn conflicts_in(&self, parent: Ino) -> MergeResult<Vec<DentryKey>> {
        let mut names: BTreeSet<Vec<u8>> = self.trees.conflicts_in(parent)?.into_iter().collect();
        for (at, conflict) in self.conflicts.within(parent) {
            match conflict {
                Some(_) => names.insert(at.name.clone()),
                None => names.remove(&at.name),
            };
        }
        Ok(names.into_iter().map(|name| DentryKey { parent, name }).collect())
    }

    /// Returns all names in conflict.
    pub(super) fn in_conflict(&mut self) -> MergeResult<&BTreeSet<DentryKey>> {
        if self.in_conflict.is_none() {
            let mut all: BTreeSet<DentryKey> = self.trees.conflicts()?.into_iter().collect();
            for (at, conflict) in self.conflicts.all() {
                match conflict {
                    Some(_) => all.insert(at.clone()),
                    None => all.remove(at),
                };
            }
            self.in_conflict = Some(all);
        }
        Ok(self.in_conflict.get_or_insert_default())
    }

    /// Returns the conflicts that arose from these changes.
    pub(super) fn new_conflicts(&self) -> Vec<(DentryKey, Conflict)> {
        let new = self.conflicts.all().iter();
        new.filter_map(|(at, conflict)| Some((at.clone(), conflict.clone()?))).collect()
    }

    /// Returns the names with conflicts whose local side is this object.
    pub(super) fn sides(&self, local: Ino) -> MergeResult<BTreeSet<DentryKey>> {
        Ok(self.conflicts.of(local, self.trees.sides(local)?))
    }

    /// Reports whether an object is reachable for users, in the tree or in a conflict.
    pub(super) fn is_reachable(&self, num: Ino) -> MergeResult<bool> {
        Ok(self.has_local_name(num)? || !self.sides(num)?.is_empty())
    }

    /// Returns the names of an object, sorted.
    pub(super) fn names(&self, tree: Tree, num: Ino) -> MergeResult<Vec<DentryKey>> {
        let names = self.trees.names(tree, num)?;
        let names = match tree {
            Tree::Local => self.local_links.of(num, names),
            Tree::Base => self.base_links.of(num, names),
        };
        Ok(names.into_iter().collect())
    }

    pub(super) fn children(&self, tree: Tree, parent: Ino) -> MergeResult<BTreeMap<Vec<u8>, Ino>> {
        let mut children: BTreeMap<Vec<u8>, Ino> = self.trees.children(tree, parent)?.into_iter().collect();
        let mut lead = |at: &DentryKey, child: Option<Ino>| match child {
            Some(child) => drop(children.insert(at.name.clone(), child)),
            None => drop(children.remove(&at.name)),
        };
        match tree {
            Tree::Local => self.local_links.within(parent).for_each(|(at, child)| lead(at, *child)),
            Tree::Base => {
                self.base_links.within(parent).for_each(|(at, link)| lead(at, link.map(|(child, _)| child)));
            }
        }
        Ok(children)
    }

    pub(super) fn is_directory(&self, num: Ino) -> MergeResult<bool> {
        Ok(self.local(num)?.is_some_and(|object| object.kind == Kind::Directory))
    }

    /// Reports whether an object has a name in the local tree.
    pub(super) fn has_local_name(&self, num: Ino) -> MergeResult<bool> {
        Ok(num == ROOT || !self.names(Tree::Local, num)?.is_empty())
    }

    /// Returns the location of a directory: its name, or the conflict of which it is, or is about to become, a side.
    pub(super) fn location(&self, directory: Ino) -> MergeResult<Option<DentryKey>> {
        if let Some(name) = self.names(Tree::Local, directory)?.into_iter().next() {
            return Ok(Some(name));
        }
        match self.detached_dirs.get(&directory) {
            Some(meanwhile) => Ok(meanwhile.clone()),
            None => Ok(self.sides(directory)?.into_iter().next()),
        }
    }

    /// Reports whether a directory is another one or below it, including conflicts.
    pub(super) fn is_below(&self, directory: Ino, above: Ino) -> MergeResult<bool> {
        let (mut at, mut way) = (directory, CycleDetector::default());
        while at != above {
            match if at == ROOT { None } else { self.location(at)? } {
                Some(location) => at = location.parent,
                None => return Ok(false),
            }
            if way.closes_cycle(at) {
                return Err(cycle_error());
            }
        }
        Ok(true)
    }

    /// Reports whether a cheap check shows that nothing is below a directory, including conflicts: it is new, or was deleted
    /// locally.
    pub(super) fn is_known_empty(&self, directory: Ino) -> MergeResult<bool> {
        Ok((self.created.contains(&directory) || !self.has_local_name(directory)?)
            && self.detached_by_parent.range((directory, 0)..=(directory, Ino::MAX)).next().is_none()
            && self.conflicts_in(directory)?.is_empty()
            && self.children(Tree::Local, directory)?.is_empty())
    }

    /// Sets the locations of directories that lost their names, and drops earlier ones.
    pub(super) fn set_detached_dirs(&mut self, fallen: BTreeMap<Ino, Option<DentryKey>>) {
        let inside = fallen.iter().filter_map(|(num, at)| Some((at.as_ref()?.parent, *num)));
        self.detached_by_parent = inside.collect();
        self.detached_dirs = fallen;
    }

    pub(super) fn unset_detached_dir(&mut self, num: Ino) {
        if let Some(Some(at)) = self.detached_dirs.remove(&num) {
            self.detached_by_parent.remove(&(at.parent, num));
        }
    }

    pub(super) fn set_local(&mut self, num: Ino, object: Option<Object>) {
        self.local.insert(num, object);
    }

    /// Sets the base version of an object; the local version stays.
    pub(super) fn set_base(&mut self, num: Ino, stored: Option<VersionedObject>) -> MergeResult {
        // If both trees share one row, the local version has to be copied before they diverge.
        let local = self.local(num)?;
        self.local.entry(num).or_insert(local);
        self.base.insert(num, stored);
        Ok(())
    }

    pub(super) fn set_num(&mut self, id: ObjectId, num: Option<Ino>) {
        self.nums.insert(id, num);
    }

    pub(super) fn set_link(&mut self, at: &DentryKey, child: Option<Ino>) {
        self.link_generation += u64::from(child.is_some());
        self.local_links.set(at.clone(), child);
    }

    /// Turns the location of a conflict's side into its name. The location does not change, so `link_generation` stays.
    pub(super) fn name_conflict_side(&mut self, at: &DentryKey, child: Ino) {
        self.local_links.set(at.clone(), Some(child));
    }

    pub(super) fn set_base_link(&mut self, at: &DentryKey, link: Option<(Ino, Seq)>) -> MergeResult {
        if self.local_links.get(at).is_none() {
            let local = self.link(at)?;
            self.local_links.set(at.clone(), local);
        }
        self.base_links.set(at.clone(), link);
        Ok(())
    }

    pub(super) fn set_conflict(&mut self, at: &DentryKey, conflict: Option<Conflict>) {
        self.link_generation += u64::from(conflict.is_some());
        if let Some(all) = &mut self.in_conflict {
            match conflict.is_some() {
                true => all.insert(at.clone()),
                false => all.remove(at),
            };
        }
        self.conflicts.set(at.clone(), conflict);
    }

    /// Records the local side of a conflict at a name. A name has one conflict: a further one gets a name next to it. A
    /// directory is a side only once: an earlier conflict of it is dropped.
    pub(super) fn record_conflict(
        &mut self,
        at: &DentryKey,
        kind: ConflictKind,
        local: Option<Ino>,
        origin: Option<ObjectId>,
    ) -> MergeResult {
        let at = &self.current_key(at);
        let conflict = Conflict { kind, local, origin, remote_node: self.author.clone() };
        let taken = self.conflict(at)?.is_some_and(|there| there.local.is_some_and(|num| Some(num) != local));
        if let Some(local) = local
            && self.is_directory(local)?
        {
            for earlier in self.sides(local)? {
                self.set_conflict(&earlier, None);
            }
        }
        if !taken {
            self.set_conflict(at, Some(conflict));
            return Ok(());
        }
        if local.is_none() {
            return Ok(());
        }
        for n in 2u64.. {
            let tail = format!("~{n}").into_bytes();
            let kept = at.name.len().min(255 - tail.len());
            let copy = DentryKey { parent: at.parent, name: [&at.name[..kept], &tail].concat() };
            if self.link(&copy)?.is_none()
                && self.base_link(&copy)?.is_none()
                && self.conflict(&copy)?.is_none()
            {
                self.set_conflict(&copy, Some(conflict));
                break;
            }
        }
        Ok(())
    }

    pub(super) fn new_num(&mut self) -> Ino {
        self.fresh.num()
    }

    /// Turns a local object into one that the store does not know.
    pub(super) fn assign_new_id(&mut self, num: Ino) -> MergeResult {
        if let Some(mut object) = self.local(num)? {
            if self.num(object.id)? == Some(num) {
                self.set_num(object.id, None);
            }
            object.id = self.fresh.id();
            self.set_num(object.id, Some(num));
            self.set_local(num, Some(object));
        }
        self.set_base(num, None)
    }

    /// Deletes an object removed from the store, unless users can reach it.
    pub(super) fn delete_unreachable(&mut self, num: Ino) -> MergeResult {
        if self.is_reachable(num)? {
            return if self.base(num)?.is_some() { self.assign_new_id(num) } else { Ok(()) };
        }
        if let Some(object) = self.local(num)?
            && self.num(object.id)? == Some(num)
        {
            self.set_num(object.id, None);
        }
        self.set_local(num, None);
        self.set_base(num, None)
    }

    /// Identifies the local object `local` with the store's object `new`, which was just created: it keeps its inode number.
    pub(super) fn adopt(&mut self, local: Ino, new: Ino) -> MergeResult {
        let Some(stored) = self.base(new)? else { return Ok(()) };
        if let Some(old) = self.local(local)? {
            self.set_num(old.id, None);
        }
        for at in self.names(Tree::Base, new)? {
            let seq = self.base_link(&at)?.map_or(Seq(0), |(_, seq)| seq);
            self.set_base_link(&at, Some((local, seq)))?;
            if self.link(&at)? == Some(new) {
                self.set_link(&at, Some(local));
            }
        }
        for tree in [Tree::Base, Tree::Local] {
            for (name, child) in self.children(tree, new)? {
                let (from, to) =
                    (DentryKey { parent: new, name: name.clone() }, DentryKey { parent: local, name });
                match tree {
                    Tree::Base => {
                        let seq = self.base_link(&from)?.map_or(Seq(0), |(_, seq)| seq);
                        self.set_base_link(&to, Some((child, seq)))?;
                        self.set_base_link(&from, None)?;
                    }
                    Tree::Local => {
                        if self.link(&to)?.is_none() {
                            self.set_link(&to, Some(child));
                        }
                        self.set_link(&from, None);
                    }
                }
            }
        }
        self.set_local(local, Some(stored.object.clone()));
        self.set_num(stored.object.id, Some(local));
        self.set_base(local, Some(stored))?;
        self.set_local(new, None);
        self.set_base(new, None)?;
        self.created.remove(&new);
        self.created.insert(local);
        self.alias.insert(new, local);
        self.identified.insert(local);
        Ok(())
    }

    /// Reports whether a local object was identified with one of the store.
    pub(super) fn is_adopted(&self, num: Ino) -> bool {
        self.identified.contains(&num)
    }

    /// Translates a name to the current inode number of its directory.
    pub(super) fn current_key(&self, at: &DentryKey) -> DentryKey {
        DentryKey { parent: self.alias(at.parent), name: at.name.clone() }
    }

    /// Returns the inode number that replaces `num`.
    pub(super) fn alias(&self, num: Ino) -> Ino {
        self.alias.get(&num).copied().unwrap_or(num)
    }
}
