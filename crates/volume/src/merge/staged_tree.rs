//! Trees as they will be: changes in memory over what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::id::{NodeName, ObjectId, Seq};
use crate::merge::cycle::{CycleDetector, cycle_error};
use crate::merge::overlay::Overlay;
use crate::merge::{Conflict, ConflictKind, DentryKey, Ino, PlanError, ROOT, Tree, Trees};
use crate::object::{Kind, Object, VersionedObject};

/// Where new numbers and ids come from.
pub trait IdAllocator {
    /// A number that no object had.
    fn num(&mut self) -> Ino;
    /// Random.
    fn id(&mut self) -> ObjectId;
}

/// What a name leads to: here, and as agreed on with the commit that made it.
pub type LinkTarget = (Option<Ino>, Option<(Ino, Seq)>);

/// What is different now: everything as it is to be. What is the same in both trees is clean.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Objects here and as agreed on.
    pub objects: BTreeMap<Ino, (Option<Object>, Option<VersionedObject>)>,
    /// Names here and as agreed on.
    pub links: BTreeMap<DentryKey, LinkTarget>,
    /// Conflicts.
    pub conflicts: BTreeMap<DentryKey, Option<Conflict>>,
}

/// Numbers, ids and names, and nothing of what is in files.
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
            write!(f, " {parent}/{}:{}|{}", name.escape_ascii(), Shown(*here), Shown(agreed))?;
        }
        for (DentryKey { parent, name }, conflict) in &self.conflicts {
            write!(f, " {parent}/{}!", name.escape_ascii())?;
            match conflict {
                Some(one) => write!(f, "{}:{}", one.kind.as_str(), Shown(one.mine))?,
                None => f.write_str("none")?,
            }
        }
        Ok(())
    }
}

struct Shown(Option<Ino>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(num) => write!(f, "{num}"),
            None => f.write_str("none"),
        }
    }
}

/// Trees with changes that are not made yet.
pub struct StagedTree<'a> {
    trees: &'a dyn Trees,
    fresh: &'a mut dyn IdAllocator,
    /// Who changes: whose side the store's is.
    pub(super) author: NodeName,
    local: BTreeMap<Ino, Option<Object>>,
    base: BTreeMap<Ino, Option<VersionedObject>>,
    nums: BTreeMap<ObjectId, Option<Ino>>,
    local_links: Overlay<Ino>,
    base_links: Overlay<(Ino, Seq)>,
    conflicts: Overlay<Conflict>,
    /// Made by the entry that is followed: nobody has seen their numbers.
    pub(super) made: BTreeSet<Ino>,
    /// Objects that the store does not have any more and that are still to be looked at, with the names here at which it
    /// has something else now.
    pub(super) deletion_candidates: BTreeMap<Ino, Vec<DentryKey>>,
    /// Where directories are that lost their names, whatever they are sides of: nowhere while the store's names come in, for they
    /// may get one of those; then where they were, for the conflicts in which they may stay are there.
    detached_dirs: BTreeMap<Ino, Option<DentryKey>>,
    /// Of these, those that are in a directory.
    fallen_in: BTreeSet<(Ino, Ino)>,
    /// All names in conflict, once that was asked for.
    in_conflict: Option<BTreeSet<DentryKey>>,
    /// How often a name was given to something, or came to be in conflict.
    pub(super) link_generation: u64,
    /// A new object of the store that was found to be one that is here.
    alias: BTreeMap<Ino, Ino>,
    /// Those that are here.
    adopted: BTreeSet<Ino>,
}

pub(super) type MergeResult<T = ()> = Result<T, PlanError>;

impl<'a> StagedTree<'a> {
    /// Nothing changed; `author` is whose changes come in.
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
            made: BTreeSet::new(),
            deletion_candidates: BTreeMap::new(),
            detached_dirs: BTreeMap::new(),
            fallen_in: BTreeSet::new(),
            in_conflict: None,
            link_generation: 0,
            alias: BTreeMap::new(),
            adopted: BTreeSet::new(),
        }
    }

    /// What is to be written.
    ///
    /// # Errors
    /// Those of reading.
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

    /// All names in conflict.
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

    /// Conflicts that came up with these changes.
    pub(super) fn new_conflicts(&self) -> Vec<(DentryKey, Conflict)> {
        let new = self.conflicts.all().iter();
        new.filter_map(|(at, conflict)| Some((at.clone(), conflict.clone()?))).collect()
    }

    /// Names with conflicts in which it is this node's side.
    pub(super) fn sides(&self, mine: Ino) -> MergeResult<BTreeSet<DentryKey>> {
        Ok(self.conflicts.of(mine, self.trees.sides(mine)?))
    }

    /// Whether users can get at it, in the tree or in a conflict.
    pub(super) fn is_wanted(&self, num: Ino) -> MergeResult<bool> {
        Ok(self.is_alive(num)? || !self.sides(num)?.is_empty())
    }

    /// In order of names, whatever order they are stored in.
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

    /// Whether users can get at it.
    pub(super) fn is_alive(&self, num: Ino) -> MergeResult<bool> {
        Ok(num == ROOT || !self.names(Tree::Local, num)?.is_empty())
    }

    /// Where users get at a directory: by its name, or in the conflict of which it is a side, or is to become one.
    pub(super) fn place(&self, directory: Ino) -> MergeResult<Option<DentryKey>> {
        if let Some(name) = self.names(Tree::Local, directory)?.into_iter().next() {
            return Ok(Some(name));
        }
        match self.detached_dirs.get(&directory) {
            Some(meanwhile) => Ok(meanwhile.clone()),
            None => Ok(self.sides(directory)?.into_iter().next()),
        }
    }

    /// Whether a directory is another, or below it, or in a conflict below it.
    pub(super) fn is_below(&self, directory: Ino, above: Ino) -> MergeResult<bool> {
        let (mut at, mut way) = (directory, CycleDetector::default());
        while at != above {
            match if at == ROOT { None } else { self.place(at)? } {
                Some(place) => at = place.parent,
                None => return Ok(false),
            }
            if way.closes_cycle(at) {
                return Err(cycle_error());
            }
        }
        Ok(true)
    }

    /// Whether it is seen at once that nothing is below a directory, nor in a conflict below it: it is new, or deleted here.
    pub(super) fn is_hollow(&self, directory: Ino) -> MergeResult<bool> {
        Ok((self.made.contains(&directory) || !self.is_alive(directory)?)
            && self.fallen_in.range((directory, 0)..=(directory, Ino::MAX)).next().is_none()
            && self.conflicts_in(directory)?.is_empty()
            && self.children(Tree::Local, directory)?.is_empty())
    }

    /// Tells where directories are that lost their names; none are where they were before.
    pub(super) fn set_detached_dirs(&mut self, fallen: BTreeMap<Ino, Option<DentryKey>>) {
        let inside = fallen.iter().filter_map(|(num, at)| Some((at.as_ref()?.parent, *num)));
        self.fallen_in = inside.collect();
        self.detached_dirs = fallen;
    }

    pub(super) fn unset_detached_dir(&mut self, num: Ino) {
        if let Some(Some(at)) = self.detached_dirs.remove(&num) {
            self.fallen_in.remove(&(at.parent, num));
        }
    }

    pub(super) fn set_local(&mut self, num: Ino, object: Option<Object>) {
        self.local.insert(num, object);
    }

    /// What both agree on is not what is here any more.
    pub(super) fn set_base(&mut self, num: Ino, stored: Option<VersionedObject>) -> MergeResult {
        // Where both were one row, what is here has to be remembered before they part.
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

    /// What has its place at a name by a conflict has it by the name now.
    pub(super) fn stay(&mut self, at: &DentryKey, child: Ino) {
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

    /// Keeps this node's side of a name. A name has one: another gets a name beside it. A directory is a side once: an
    /// earlier wish for it to be elsewhere is given up.
    pub(super) fn keep(
        &mut self,
        at: &DentryKey,
        kind: ConflictKind,
        mine: Option<Ino>,
        origin: Option<ObjectId>,
    ) -> MergeResult {
        let at = &self.known_place(at);
        let conflict = Conflict { kind, mine, origin, theirs: self.author.clone() };
        let taken = self.conflict(at)?.is_some_and(|there| there.mine.is_some_and(|num| Some(num) != mine));
        if let Some(mine) = mine
            && self.is_directory(mine)?
        {
            for earlier in self.sides(mine)? {
                self.set_conflict(&earlier, None);
            }
        }
        if !taken {
            self.set_conflict(at, Some(conflict));
            return Ok(());
        }
        if mine.is_none() {
            return Ok(());
        }
        for n in 2u64.. {
            let tail = format!("~{n}").into_bytes();
            let kept = at.name.len().min(255 - tail.len());
            let beside = DentryKey { parent: at.parent, name: [&at.name[..kept], &tail].concat() };
            if self.link(&beside)?.is_none()
                && self.base_link(&beside)?.is_none()
                && self.conflict(&beside)?.is_none()
            {
                self.set_conflict(&beside, Some(conflict));
                break;
            }
        }
        Ok(())
    }

    pub(super) fn new_num(&mut self) -> Ino {
        self.fresh.num()
    }

    /// Makes what is here an object that the store does not know.
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

    /// The store does not have it any more: unless users can get at it, nobody does.
    pub(super) fn forget(&mut self, num: Ino) -> MergeResult {
        if self.is_wanted(num)? {
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

    /// `ours` is what the store calls `new`, that was just made: users keep the number that they know.
    pub(super) fn adopt(&mut self, ours: Ino, new: Ino) -> MergeResult {
        let Some(stored) = self.base(new)? else { return Ok(()) };
        if let Some(old) = self.local(ours)? {
            self.set_num(old.id, None);
        }
        for at in self.names(Tree::Base, new)? {
            let seq = self.base_link(&at)?.map_or(Seq(0), |(_, seq)| seq);
            self.set_base_link(&at, Some((ours, seq)))?;
            if self.link(&at)? == Some(new) {
                self.set_link(&at, Some(ours));
            }
        }
        for tree in [Tree::Base, Tree::Local] {
            for (name, child) in self.children(tree, new)? {
                let (from, to) =
                    (DentryKey { parent: new, name: name.clone() }, DentryKey { parent: ours, name });
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
        self.set_local(ours, Some(stored.object.clone()));
        self.set_num(stored.object.id, Some(ours));
        self.set_base(ours, Some(stored))?;
        self.set_local(new, None);
        self.set_base(new, None)?;
        self.made.remove(&new);
        self.made.insert(ours);
        self.alias.insert(new, ours);
        self.adopted.insert(ours);
        Ok(())
    }

    /// Whether users knew an object that others made now, under the number that it keeps.
    pub(super) fn is_adopted(&self, num: Ino) -> bool {
        self.adopted.contains(&num)
    }

    /// A name, by the number that its directory has now.
    pub(super) fn known_place(&self, at: &DentryKey) -> DentryKey {
        DentryKey { parent: self.alias(at.parent), name: at.name.clone() }
    }

    /// The number that stands for another.
    pub(super) fn alias(&self, num: Ino) -> Ino {
        self.alias.get(&num).copied().unwrap_or(num)
    }
}
