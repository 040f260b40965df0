//! Computes the commits that bring local changes into the store.
//!
//! Each commit has preconditions from the base, so that the store rejects it if another node changed the same. Names are planned
//! first, then fields of objects. Contents are uploaded between two plans ([`UploadSet`]). Changes below a conflict are held back.

mod atomic_groups;
mod upload_set;

use std::collections::{BTreeMap, BTreeSet};

pub use upload_set::{FileUpload, UploadSet};

use crate::id::{ObjectId, Seq};
use crate::merge::cycle::CycleDetector;
use crate::merge::fields::differing;
use crate::merge::staged_tree::MergeResult;
use crate::merge::{DentryKey, Ino, PlanError, ROOT, Tree, Trees};
use crate::object::{ChunkId, Content, Field, Kind, LinkName, VersionedObject};
use crate::store::{ChunkLocation, Mutation, Precondition, Transaction, codec};

/// Limit in bytes of the commits in one batch, which is sent in one message.
const MAX_BATCH_BYTES: u64 = 8 << 20;
/// Bytes of a file's content per estimated byte in its commit, for chunk locations.
const CONTENT_BYTES_PER_COMMIT_BYTE: u64 = 8192;

/// Candidates for differences between local tree and base, in the order of their changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirtySet {
    /// Names.
    pub names: Vec<DentryKey>,
    /// Objects.
    pub objects: Vec<Ino>,
}

/// An uploaded content, and the locations of its new chunks.
pub type UploadedContent = (Content, Vec<(ChunkId, ChunkLocation)>);

/// Commits, and the part of the [`DirtySet`] that has to wait.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PushPlan {
    /// In this order. Each may be rejected by itself.
    pub items: Vec<Transaction>,
    /// Number of names and objects that cannot be sent now: below a conflict, or being written.
    pub blocked: usize,
    /// Objects that turned out not to differ.
    pub same: Vec<Ino>,
}

/// Plans about `limit` commits, and about 8 MiB of them. Changes of files that are not in `uploads` are left out, and the files
/// recorded there as missing.
///
/// A change of names is one commit with all changes that have to be atomic with it: both ends of a move, and the object it
/// replaced.
///
/// # Errors
/// [`PlanError::Read`]
pub fn push<'a>(
    trees: &'a dyn Trees,
    todo: &DirtySet,
    limit: usize,
    uploads: &'a mut UploadSet,
) -> Result<PushPlan, PlanError> {
    let mut pushing = PushPlanner {
        trees,
        max_commits: limit,
        uploads,
        visited: BTreeSet::new(),
        changing_names: BTreeSet::new(),
        created_objects: BTreeSet::new(),
        deleted_objects: BTreeSet::new(),
        reached: BTreeSet::new(),
        unreachable_dirs: BTreeSet::new(),
        waiting: Vec::new(),
        planned: PushPlan::default(),
        bytes: 0,
    };
    for at in &todo.names {
        if pushing.is_full() {
            break;
        }
        pushing.name(at)?;
    }
    pushing.retry_waiting()?;
    for &num in &todo.objects {
        if pushing.is_full() {
            break;
        }
        pushing.object(num)?;
    }
    Ok(pushing.planned)
}

/// Combines transactions into one, for changes that make sense only together.
pub fn combine(items: Vec<Transaction>) -> Transaction {
    let mut all = Transaction::default();
    let mut changes = Vec::new();
    for item in items {
        all.preconditions.extend(item.preconditions);
        all.chunks.extend(item.chunks);
        changes.extend(item.mutations);
    }
    let rank = |change: &Mutation| match change {
        Mutation::Unlink(_) => 0,
        Mutation::Make(_) => 1,
        Mutation::Link(..) => 2,
        _ => 3,
    };
    changes.sort_by_key(rank);
    all.mutations = changes;
    all
}

struct PushPlanner<'a> {
    trees: &'a dyn Trees,
    max_commits: usize,
    uploads: &'a mut UploadSet,
    /// Names already processed.
    visited: BTreeSet<DentryKey>,
    /// Names that change in these commits.
    changing_names: BTreeSet<DentryKey>,
    /// New objects that these commits create.
    created_objects: BTreeSet<Ino>,
    /// Objects that these commits delete.
    deleted_objects: BTreeSet<Ino>,
    /// Directories whose whole path from the root was processed.
    reached: BTreeSet<Ino>,
    /// Directories without a path to the root.
    unreachable_dirs: BTreeSet<Ino>,
    /// Groups of names that depend on other pending groups.
    waiting: Vec<BTreeSet<DentryKey>>,
    planned: PushPlan,
    /// Estimated size of these commits in a message.
    bytes: u64,
}

/// A differing name: its object in the base with the commit, and its local object.
type Differing = (Option<(Ino, Seq)>, Option<Ino>);

/// Names that must change atomically, and the objects that connect them.
type AtomicGroup = (BTreeMap<DentryKey, Differing>, BTreeSet<Ino>);

/// A step for a name, on an explicit stack, since prerequisites are processed first and may be deeply nested.
enum Task {
    /// Process a name with its atomic group.
    Visit(DentryKey),
    /// The whole path to a directory was processed.
    MarkReached(Ino),
    /// Process the entries of a directory that is to be deleted.
    VisitEntries(Ino),
    /// This number of names is below the side of a conflict, and waits for its resolution.
    CountBlocked(usize),
    /// Plan a commit for the group.
    PlanGroup(AtomicGroup),
}

/// The reason why a change cannot be sent.
enum Blocked {
    /// It needs other changes first.
    ForOthers,
    /// The content of a file cannot be uploaded now.
    ForContent,
}

impl PushPlanner<'_> {
    fn is_full(&self) -> bool {
        self.planned.items.len() >= self.max_commits || self.bytes >= MAX_BATCH_BYTES
    }

    fn plan(&mut self, item: Transaction) {
        let content = |change: &Mutation| match change {
            Mutation::Make(object) => object.content.size,
            Mutation::SetContent(_, content, _) => content.size,
            _ => 0,
        };
        let contents: u64 = item.mutations.iter().map(content).sum();
        self.bytes += codec::encode(&item).len() as u64 + contents / CONTENT_BYTES_PER_COMMIT_BYTE;
        self.planned.items.push(item);
    }

    fn differing(&self, at: &DentryKey) -> MergeResult<Option<Differing>> {
        let base = self.trees.link(Tree::Base, at)?;
        let local = self.trees.link(Tree::Local, at)?.map(|(child, _)| child);
        Ok((base.map(|(child, _)| child) != local).then_some((base, local)))
    }

    /// Processes a name with its atomic group, after the changes that must precede it.
    fn name(&mut self, at: &DentryKey) -> MergeResult {
        let mut tasks = vec![Task::Visit(at.clone())];
        while let Some(task) = tasks.pop() {
            match task {
                // The batch is full: further steps are skipped.
                Task::Visit(_) | Task::VisitEntries(_) if self.is_full() => {}
                Task::Visit(at) => self.push_steps(&at, &mut tasks)?,
                Task::MarkReached(num) => drop(self.reached.insert(num)),
                Task::VisitEntries(num) => {
                    let inside = self.trees.children(Tree::Base, num)?.into_iter().rev();
                    tasks.extend(inside.map(|(name, _)| Task::Visit(DentryKey { parent: num, name })));
                }
                Task::CountBlocked(names) => self.planned.blocked += names,
                Task::PlanGroup((changes, objects)) => self.plan_group(changes, &objects)?,
            }
        }
        Ok(())
    }

    /// Pushes the steps for a name onto the stack, the first one last.
    fn push_steps(&mut self, at: &DentryKey, tasks: &mut Vec<Task>) -> MergeResult {
        if self.visited.contains(at) {
            return Ok(());
        }
        let Some((changes, objects)) = self.atomic_group(at)? else { return Ok(()) };
        self.visited.extend(changes.keys().cloned());
        let (mut ways, mut is_held) = (Vec::new(), false);
        for (at, _) in changes.iter().filter(|(_, (_, local))| local.is_some()) {
            match self.path_prerequisites(at.parent)? {
                Some(way) => ways.extend(way),
                None => {
                    is_held = true;
                    break;
                }
            }
        }
        if is_held {
            tasks.push(Task::CountBlocked(changes.len()));
        } else {
            let mut emptied = Vec::new();
            for &num in objects.iter().rev() {
                if self.trees.names(Tree::Local, num)?.is_empty() {
                    emptied.push(Task::VisitEntries(num));
                }
            }
            tasks.push(Task::PlanGroup((changes, objects)));
            tasks.extend(emptied);
        }
        tasks.extend(ways.into_iter().rev());
        Ok(())
    }

    fn plan_group(
        &mut self,
        changes: BTreeMap<DentryKey, Differing>,
        objects: &BTreeSet<Ino>,
    ) -> MergeResult {
        if self.is_full() {
            return Ok(());
        }
        let fits = self.will_be_empty(&changes, objects)? && !self.creates_cycle(&changes)?;
        match if fits { self.item(&changes, objects)? } else { Err(Blocked::ForOthers) } {
            Ok(item) => {
                self.plan(item);
                self.changing_names.extend(changes.into_keys());
            }
            Err(Blocked::ForOthers) => self.waiting.push(changes.into_keys().collect()),
            Err(Blocked::ForContent) => self.planned.blocked += changes.len(),
        }
        Ok(())
    }

    /// Retries waiting groups after further commits are planned: of groups that depend on each other, some are processed too
    /// early.
    fn retry_waiting(&mut self) -> MergeResult {
        loop {
            let before = self.planned.items.len();
            let waiting = std::mem::take(&mut self.waiting);
            for at in waiting.iter().flatten() {
                self.visited.remove(at);
            }
            // The waiting names may be on a path.
            self.reached.clear();
            for at in waiting.iter().filter_map(|names| names.first()) {
                self.name(at)?;
            }
            if self.planned.items.len() == before {
                break;
            }
        }
        self.planned.blocked += self.waiting.iter().map(BTreeSet::len).sum::<usize>();
        Ok(())
    }

    /// Reports whether directories to be deleted will be empty then.
    fn will_be_empty(
        &self,
        changes: &BTreeMap<DentryKey, Differing>,
        objects: &BTreeSet<Ino>,
    ) -> MergeResult<bool> {
        for &num in objects {
            if self.trees.names(Tree::Local, num)?.is_empty() {
                for (name, _) in self.trees.children(Tree::Base, num)? {
                    let at = DentryKey { parent: num, name };
                    if !self.changing_names.contains(&at) && !changes.contains_key(&at) {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Reports whether the store would have a directory below itself, because its new parent was below it and has not been
    /// moved yet.
    fn creates_cycle(&self, changes: &BTreeMap<DentryKey, Differing>) -> MergeResult<bool> {
        let left: BTreeSet<Ino> = changes.values().filter_map(|(base, _)| Some(base.as_ref()?.0)).collect();
        for (at, (_, local)) in changes {
            let Some(moved) = local.filter(|child| left.contains(child)) else { continue };
            if self.trees.local(moved)?.is_none_or(|object| object.kind != Kind::Directory) {
                continue;
            }
            let (mut num, mut way) = (at.parent, CycleDetector::default());
            while num != ROOT
                && let Some(location) = self.location_after(num, changes)?
            {
                if num == moved || way.closes_cycle(num) {
                    return Ok(true);
                }
                num = location.parent;
            }
        }
        Ok(false)
    }

    /// Returns the location of a directory in the store after these changes.
    fn location_after(
        &self,
        num: Ino,
        changes: &BTreeMap<DentryKey, Differing>,
    ) -> MergeResult<Option<DentryKey>> {
        let here = self.trees.names(Tree::Local, num)?.into_iter().next();
        if self.trees.base(num)?.is_none() {
            return Ok(here);
        }
        let goes = |at: &DentryKey| -> MergeResult<bool> {
            Ok(changes.contains_key(at) || self.changing_names.contains(at) || self.differing(at)?.is_none())
        };
        match here {
            Some(at) if goes(&at)? => Ok(Some(at)),
            _ => Ok(self.trees.names(Tree::Base, num)?.into_iter().next()),
        }
    }

    /// Returns the changes ordered by depth: directories before their entries.
    fn downwards<'a>(
        &self,
        changes: &'a BTreeMap<DentryKey, Differing>,
    ) -> MergeResult<Vec<(&'a DentryKey, &'a Differing)>> {
        let mut ordered: Vec<_> = changes.iter().map(|(at, change)| (0, at, change)).collect();
        let first = changes.keys().next().map(|at| at.parent);
        if changes.keys().any(|at| Some(at.parent) != first) {
            for (depth, at, _) in &mut ordered {
                let (mut num, mut way) = (at.parent, CycleDetector::default());
                while num != ROOT
                    && let Some(name) = self.trees.names(Tree::Local, num)?.into_iter().next()
                {
                    if way.closes_cycle(num) {
                        *depth = u64::MAX;
                        break;
                    }
                    (num, *depth) = (name.parent, *depth + 1);
                }
            }
            ordered.sort_by_key(|(depth, ..)| *depth);
        }
        Ok(ordered.into_iter().map(|(_, at, change)| (at, change)).collect())
    }

    /// Returns the steps for new or moved directories on the path to a new name, which have to precede it, from the root down,
    /// except those already processed. `None`: the path does not lead to the root.
    fn path_prerequisites(&mut self, mut num: Ino) -> MergeResult<Option<Vec<Task>>> {
        let (mut names, mut way) = (Vec::new(), CycleDetector::default());
        while num != ROOT && !self.reached.contains(&num) {
            let at = self.trees.names(Tree::Local, num)?.into_iter().next();
            let Some(at) = at.filter(|_| !self.unreachable_dirs.contains(&num) && !way.closes_cycle(num))
            else {
                self.unreachable_dirs.insert(num);
                self.unreachable_dirs.extend(names.into_iter().map(|(num, _)| num));
                return Ok(None);
            };
            let parent = at.parent;
            names.push((num, at));
            num = parent;
        }
        Ok(Some(
            names.into_iter().rev().flat_map(|(num, at)| [Task::Visit(at), Task::MarkReached(num)]).collect(),
        ))
    }

    fn item(
        &mut self,
        changes: &BTreeMap<DentryKey, Differing>,
        objects: &BTreeSet<Ino>,
    ) -> MergeResult<Result<Transaction, Blocked>> {
        let mut item = Transaction::default();
        let mut makes = Vec::new();
        let mut links = Vec::new();
        let mut arriving = Vec::new();
        for (at, (base, local)) in self.downwards(changes)? {
            let Some(parent) = self.id(at.parent, &arriving)? else {
                if local.is_none() {
                    continue;
                }
                return Ok(Err(Blocked::ForOthers));
            };
            let name = LinkName { parent, name: at.name.clone() };
            let before = match base {
                Some((child, seq)) => self.trees.base(*child)?.map(|stored| (stored.object.id, *seq)),
                None => None,
            };
            item.preconditions.push(Precondition::Link(name.clone(), before));
            if before.is_some() {
                item.mutations.push(Mutation::Unlink(name.clone()));
            }
            let Some(child) = *local else { continue };
            if self.trees.base(child)?.is_none()
                && !self.created_objects.contains(&child)
                && !arriving.contains(&child)
            {
                let Some(mut object) = self.trees.local(child)? else { return Ok(Err(Blocked::ForOthers)) };
                if object.kind == Kind::Regular {
                    let Some((content, chunks)) = self.uploads.content(self.trees, child, &object)? else {
                        return Ok(Err(Blocked::ForContent));
                    };
                    object.content = content;
                    item.chunks.extend(chunks);
                }
                makes.push(Mutation::Make(object));
                arriving.push(child);
            }
            let Some(id) = self.id(child, &arriving)? else { return Ok(Err(Blocked::ForOthers)) };
            links.push(Mutation::Link(name, id));
        }
        for &num in objects {
            let Some(stored) = self.trees.base(num)? else { continue };
            if num != ROOT && self.trees.names(Tree::Local, num)?.is_empty() {
                require_unchanged(&mut item.preconditions, &stored);
                self.deleted_objects.insert(num);
            } else if let Some(name) = self.other_name_precondition(num, changes)? {
                item.preconditions.push(name);
            }
        }
        item.mutations.extend(makes);
        item.mutations.extend(links);
        self.created_objects.extend(arriving);
        Ok(Ok(item))
    }

    /// Returns a precondition if the object loses a name and keeps another, which another node may be about to remove.
    fn other_name_precondition(
        &self,
        num: Ino,
        changes: &BTreeMap<DentryKey, Differing>,
    ) -> MergeResult<Option<Precondition>> {
        if changes.values().any(|(_, local)| *local == Some(num)) {
            return Ok(None);
        }
        for at in self.trees.names(Tree::Base, num)? {
            if !changes.contains_key(&at)
                && let (Some(stored), Some(parent)) = (self.trees.base(num)?, self.trees.base(at.parent)?)
                && let Some((_, seq)) = self.trees.link(Tree::Base, &at)?
            {
                let name = LinkName { parent: parent.object.id, name: at.name };
                return Ok(Some(Precondition::Link(name, Some((stored.object.id, seq)))));
            }
        }
        Ok(None)
    }

    /// Returns the id of an object that the store knows when the transaction is committed.
    fn id(&self, num: Ino, arriving: &[Ino]) -> MergeResult<Option<ObjectId>> {
        if let Some(stored) = self.trees.base(num)? {
            return Ok(Some(stored.object.id));
        }
        if self.created_objects.contains(&num) || arriving.contains(&num) {
            return Ok(self.trees.local(num)?.map(|object| object.id));
        }
        Ok(None)
    }

    fn object(&mut self, num: Ino) -> MergeResult {
        let (Some(here), Some(base)) = (self.trees.local(num)?, self.trees.base(num)?) else { return Ok(()) };
        if self.deleted_objects.contains(&num)
            || (num != ROOT && self.trees.names(Tree::Local, num)?.is_empty())
        {
            return Ok(());
        }
        let id = base.object.id;
        let fields = differing(&base.object, &here);
        if fields.is_empty() {
            self.planned.same.push(num);
        }
        let mut item = Transaction::default();
        for field in fields {
            let change = match &field {
                Field::Content => {
                    let Some((content, chunks)) = self.uploads.content(self.trees, num, &here)? else {
                        self.planned.blocked += 1;
                        continue;
                    };
                    if content.is_same(&base.object.content) {
                        continue;
                    }
                    item.chunks.extend(chunks);
                    Mutation::SetContent(id, content, here.modified)
                }
                Field::Mode => Mutation::SetMode(id, here.mode),
                Field::Owner => Mutation::SetOwner(id, here.owner),
                Field::Group => Mutation::SetGroup(id, here.group),
                Field::Modified => {
                    item.mutations.push(Mutation::SetModified(id, here.modified));
                    continue;
                }
                Field::Xattr(name) => Mutation::SetXattr(id, name.clone(), here.xattrs.get(name).cloned()),
            };
            item.preconditions.push(Precondition::Field(id, field.clone(), base.seq_of(&field)));
            item.mutations.push(change);
        }
        if !item.mutations.is_empty() {
            self.plan(item);
        }
        Ok(())
    }
}

/// Requires for a deletion that the object is unchanged: a concurrent change then leads to a conflict.
fn require_unchanged(when: &mut Vec<Precondition>, stored: &VersionedObject) {
    let object = &stored.object;
    if object.kind == Kind::Directory {
        return;
    }
    let content = (object.kind == Kind::Regular).then_some(Field::Content);
    let xattrs = stored.field_versions.keys().filter(|field| matches!(field, Field::Xattr(_))).cloned();
    for field in content.into_iter().chain([Field::Mode, Field::Owner, Field::Group]).chain(xattrs) {
        let seq = stored.seq_of(&field);
        when.push(Precondition::Field(object.id, field, seq));
    }
}
