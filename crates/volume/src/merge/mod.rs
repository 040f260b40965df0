//! What becomes of two sets of changes to one tree.
//!
//! Three trees are looked at: *remote*, what the store holds; *local*, what this node's users see and change; and *base*,
//! what both last agreed on, which is the remote tree at the place of the log up to which it was read. The log is
//! followed entry by entry: [`apply_entry`] brings one entry into the base and into the local tree, [`push`](mod@push) says by
//! which commits the local tree gets into the store. Both are pure: they read [`Trees`] and give back [`Changes`] or
//! items.
//!
//! # Rules
//!
//! | here | in the store | result |
//! |---|---|---|
//! | nothing, or the same value | anything | the store's |
//! | a field | another field | both |
//! | a field | the same field, another value | conflict: [`Modified`](ConflictKind::Modified), [`Attributes`](ConflictKind::Attributes) |
//! | changed | deleted | conflict: [`ChangedDeleted`](ConflictKind::ChangedDeleted) |
//! | deleted | changed, moved | conflict: [`DeletedChanged`](ConflictKind::DeletedChanged) |
//! | a name | the same name for something else | conflict: [`Created`](ConflictKind::Created); two equal files are one, two new directories are one with the names of both |
//! | names in a directory | the directory deleted | one conflict at the directory: [`ChangedDeleted`](ConflictKind::ChangedDeleted) |
//! | a directory deleted | changes in it | one conflict at the directory, with all that was in it: [`DeletedChanged`](ConflictKind::DeletedChanged) |
//! | moved | moved elsewhere | the store's place, and a conflict at the other: [`Moved`](ConflictKind::Moved) |
//! | moved below what | is moved below it | the store's place, and a conflict at the other: [`Moved`](ConflictKind::Moved) |
//!
//! A time of modification is never in conflict: the later wins. Permission bits and owners of *directories* are not
//! either, since a conflict would take all that is in them from its place: what was committed first stays.
//!
//! # A conflict
//!
//! is a property of a [name](DentryKey), not of an object: the tree that is synchronised has the store's side there, or nothing
//! if it was deleted; this node's side is kept beside, as an object that the store does not know, until one is chosen by
//! [`resolve`]. So whatever else happens in the store meanwhile finds a tree without conflicts.
//!
//! Where a volume is set to that, a conflict is decided as it arises: this node's side has the name, the other one beside it.
//!
//! This node's side may be an object that the store has elsewhere: a file has one more name by that, a directory is only
//! wanted there. So that the tree stays one, with the sides of conflicts in it:
//!
//! - A directory is a side of one conflict at most. A later one takes the place of an earlier.
//! - The place of a directory is its name, or, where it has none, the conflict of which it is a side. No directory is
//!   below itself by places.
//! - What is in a directory that has no way to the top by names is not sent: it waits for the conflict.

mod conflict_copy;
mod cycle;
mod deletions;
mod fields;
mod log_apply;
mod name_collisions;
mod overlay;
mod push;
mod resolve;
mod resync;
mod staged_tree;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::id::{NodeName, ObjectId, Seq};
use crate::object::{Object, VersionedObject};

pub use conflict_copy::{ATTRIBUTE, BESIDE, theirs_beside};
pub(crate) use cycle::CycleDetector;
pub use log_apply::{apply_entry, begin};
pub use push::{DirtySet, Planned, UploadedContent, Uploader, one, push};
pub use resolve::{Side, beside, keep_both, resolve};
pub use resync::{Snapshot, resync};
pub use staged_tree::{Changes, IdAllocator, LinkTarget, StagedTree};

/// An object as this node numbers it. The top directory is [`ROOT`].
pub type Ino = u64;

/// The top directory.
pub const ROOT: Ino = 1;

/// A name as this node numbers its directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DentryKey {
    /// The directory.
    pub parent: Ino,
    /// 1 to 255 bytes.
    pub name: Vec<u8>,
}

/// One of the two trees that a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tree {
    /// What users of this node see, with the store's side at names in conflict.
    Local,
    /// What both sides agreed on.
    Base,
}

/// What kind of changes do not go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConflictKind {
    /// Contents were changed on both sides.
    Modified,
    /// One attribute was changed on both sides.
    Attributes,
    /// Changed here, deleted there.
    ChangedDeleted,
    /// Deleted here, changed there.
    DeletedChanged,
    /// One name was given to different things.
    Created,
    /// Moved here in a way that does not go with a move there.
    Moved,
}

impl ConflictKind {
    /// In words: this node's side first.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Modified => "modify/modify",
            Self::Attributes => "attributes/attributes",
            Self::ChangedDeleted => "modify/delete",
            Self::DeletedChanged => "delete/modify",
            Self::Created => "create/create",
            Self::Moved => "move/move",
        }
    }
}

/// This node's side of a name; the other is the name in [`Tree::Local`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// What happened.
    pub kind: ConflictKind,
    /// This node's version. `None`: it was deleted here.
    pub mine: Option<Ino>,
    /// What it is a version of.
    pub origin: Option<ObjectId>,
    /// Who made the other.
    pub theirs: NodeName,
}

/// What is read to make a plan.
pub trait Trees {
    /// An object as it is here. One that was deleted here is there until the store has deleted it, too.
    ///
    /// # Errors
    /// Those of reading.
    fn local(&self, num: Ino) -> Result<Option<Object>, Errno>;

    /// An object as both sides agreed on.
    ///
    /// # Errors
    /// Those of reading.
    fn base(&self, num: Ino) -> Result<Option<VersionedObject>, Errno>;

    /// The number of an object.
    ///
    /// # Errors
    /// Those of reading.
    fn num(&self, id: ObjectId) -> Result<Option<Ino>, Errno>;

    /// What a name leads to; its commit is 0 in [`Tree::Local`].
    ///
    /// # Errors
    /// Those of reading.
    fn link(&self, tree: Tree, at: &DentryKey) -> Result<Option<(Ino, Seq)>, Errno>;

    /// All names of an object.
    ///
    /// # Errors
    /// Those of reading.
    fn names(&self, tree: Tree, num: Ino) -> Result<Vec<DentryKey>, Errno>;

    /// All names in a directory.
    ///
    /// # Errors
    /// Those of reading.
    fn children(&self, tree: Tree, parent: Ino) -> Result<Vec<(Vec<u8>, Ino)>, Errno>;

    /// The conflict at a name.
    ///
    /// # Errors
    /// Those of reading.
    fn conflict(&self, at: &DentryKey) -> Result<Option<Conflict>, Errno>;

    /// A number that is different after the content of an object, or anything else of it, was changed here.
    ///
    /// # Errors
    /// Those of reading.
    fn version(&self, num: Ino) -> Result<u64, Errno>;

    /// Names with conflicts in which an object is this node's side.
    ///
    /// # Errors
    /// Those of reading.
    fn sides(&self, mine: Ino) -> Result<Vec<DentryKey>, Errno>;

    /// Names in a directory that have a conflict.
    ///
    /// # Errors
    /// Those of reading.
    fn conflicts_in(&self, parent: Ino) -> Result<Vec<Vec<u8>>, Errno>;

    /// All names that have a conflict.
    ///
    /// # Errors
    /// Those of reading.
    fn conflicts(&self) -> Result<Vec<DentryKey>, Errno>;
}

/// Makes a plan of trees.
pub type Plan<'a> = dyn FnMut(&dyn Trees, &mut dyn IdAllocator) -> Result<Changes, PlanError> + 'a;

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The trees cannot be read.
    #[error("the replica cannot be read: {0}")]
    Read(#[from] Errno),
    /// The log does not follow from what was read before.
    #[error("the log of the volume does not go with this replica: {0}")]
    Log(String),
    /// What is wanted cannot be.
    #[error("{0}")]
    Cannot(&'static str),
}

/// Whether two objects that are not directories are the same to a user.
fn is_same(one: &Object, other: &Object) -> bool {
    one.kind == other.kind
        && one.mode == other.mode
        && one.owner == other.owner
        && one.group == other.group
        && one.target == other.target
        && one.xattrs == other.xattrs
        && one.content.is_same(&other.content)
}
