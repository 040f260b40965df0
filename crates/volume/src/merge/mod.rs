//! Three-way merge of two sets of changes to one tree.
//!
//! The merge has three trees: *remote*, the state of the store; *local*, the state that this node's users see and change; and
//! *base*, the last state both agreed on, which is the remote tree at the log entry up to which this node has read. The log is
//! applied entry by entry: [`apply_entry`] merges one entry into the base and the local tree; `push` computes the
//! commits that bring local changes into the store. Both are pure: they read [`Trees`] and return [`Changes`] or transactions.
//!
//! # Rules
//!
//! | local | store | result |
//! |---|---|---|
//! | unchanged, or the same value | anything | the store's |
//! | a field | another field | both |
//! | a field | the same field, another value | conflict: [`Modified`](ConflictKind::Modified), [`Attributes`](ConflictKind::Attributes) |
//! | changed | deleted | conflict: [`ChangedDeleted`](ConflictKind::ChangedDeleted) |
//! | deleted | changed, moved | conflict: [`DeletedChanged`](ConflictKind::DeletedChanged) |
//! | a name | the same name for something else | conflict: [`Created`](ConflictKind::Created); two equal files are one, two new directories are one with the names of both |
//! | names in a directory | the directory deleted | one conflict at the directory: [`ChangedDeleted`](ConflictKind::ChangedDeleted) |
//! | a directory deleted | changes in it | one conflict at the directory, with all that was in it: [`DeletedChanged`](ConflictKind::DeletedChanged) |
//! | moved | moved elsewhere | the store's location, and a conflict at the other: [`Moved`](ConflictKind::Moved) |
//! | moved below X | X moved below it | the store's location, and a conflict at the other: [`Moved`](ConflictKind::Moved) |
//!
//! Modification times never conflict: the later one wins. Permission bits and owners of *directories* never conflict either,
//! since a conflict would remove everything in the directory from its location: the first commit wins.
//!
//! # Conflicts
//!
//! A conflict is a property of a [name](DentryKey), not of an object: the synchronised tree has the store's side there, or
//! nothing if it was deleted. This node's side is kept separately, as an object unknown to the store, until a side is chosen by
//! [`resolve`]. So later changes of the store apply to a tree without conflicts.
//!
//! If the volume is configured to keep conflict copies, a conflict is resolved as it arises: this node's side gets the name,
//! and the other side a name next to it.
//!
//! This node's side may be an object that the store has elsewhere: a file then has one more name; a directory stays where the
//! store has it, and the conflict records the requested location. These rules keep the tree, including the sides of
//! conflicts, a tree:
//!
//! - A directory is a side of at most one conflict. A later conflict replaces an earlier one.
//! - The location of a directory is its name, or, if it has none, the conflict of which it is a side. No directory is below
//!   itself by locations.
//! - Changes in a directory without a path of names to the root are not sent: they wait for the resolution of the conflict.

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

pub use conflict_copy::{ATTRIBUTE, KEEP_BOTH_VALUE};
pub(crate) use cycle::CycleDetector;
pub use log_apply::{apply_entry, begin};
pub use push::{DirtySet, FileUpload, PushPlan, UploadSet, UploadedContent, combine, push};
pub use resolve::{Side, keep_both, resolve};
pub use resync::{Snapshot, resync};
pub use staged_tree::{Changes, IdAllocator};

/// A node's local inode number. The root directory is [`ROOT`].
pub type Ino = u64;

/// The root directory.
pub const ROOT: Ino = 1;

/// A name in a directory, by the directory's inode number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DentryKey {
    /// The directory.
    pub parent: Ino,
    /// 1 to 255 bytes.
    pub name: Vec<u8>,
}

/// One of the two trees that a node stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tree {
    /// The tree that users of this node see, with the store's side at names in conflict.
    Local,
    /// The last state both sides agreed on.
    Base,
}

/// The kind of changes that are in conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConflictKind {
    /// The content was changed on both sides.
    Modified,
    /// One attribute was changed on both sides.
    Attributes,
    /// Changed locally, deleted in the store.
    ChangedDeleted,
    /// Deleted locally, changed in the store.
    DeletedChanged,
    /// One name was given to different objects.
    Created,
    /// A local move is incompatible with one in the store.
    Moved,
}

impl ConflictKind {
    /// Returns the kind in words, this node's side first.
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

/// A conflict at a name: this node's side. The other side is the name in [`Tree::Local`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The kind of changes.
    pub kind: ConflictKind,
    /// This node's version; `None`: deleted locally.
    pub local: Option<Ino>,
    /// The object it is a version of.
    pub origin: Option<ObjectId>,
    /// The node that made the other version.
    pub remote_node: NodeName,
}

/// Read access to the trees of a node.
pub trait Trees {
    /// Returns a local object. One that was deleted locally exists until the store has deleted it, too.
    ///
    /// # Errors
    /// The [`Errno`] of reading the replica.
    fn local(&self, num: Ino) -> Result<Option<Object>, Errno>;

    /// Returns an object of the base.
    ///
    /// # Errors
    /// The [`Errno`] of reading the replica.
    fn base(&self, num: Ino) -> Result<Option<VersionedObject>, Errno>;

    /// Returns the inode number of an object.
    ///
    /// # Errors
    /// The [`Errno`] of reading the replica.
    fn num(&self, id: ObjectId) -> Result<Option<Ino>, Errno>;

    /// Returns the object that a name refers to, and the commit that set it; 0 in [`Tree::Local`].
    ///
    /// # Errors
    /// The [`Errno`] of reading the replica.
    fn link(&self, tree: Tree, at: &DentryKey) -> Result<Option<(Ino, Seq)>, Errno>;

    /// Returns all names of an object.
    ///
    /// # Errors
    /// The [`Errno`] of reading the replica.
    fn names(&self, tree: Tree, num: Ino) -> Result<Vec<DentryKey>, Errno>;

    /// Returns all entries of a directory.
    ///
    /// # Errors
    /// The [`Errno`] of reading the replica.
    fn children(&self, tree: Tree, parent: Ino) -> Result<Vec<(Vec<u8>, Ino)>, Errno>;

    /// Returns the conflict at a name.
    ///
    /// # Errors
    /// The [`Errno`] of reading the replica.
    fn conflict(&self, at: &DentryKey) -> Result<Option<Conflict>, Errno>;

    /// Returns a change counter of a local object, which differs after any change of its content or attributes.
    ///
    /// # Errors
    /// The [`Errno`] of reading the replica.
    fn version(&self, num: Ino) -> Result<u64, Errno>;

    /// Returns the names with conflicts whose local side is this object.
    ///
    /// # Errors
    /// The [`Errno`] of reading the replica.
    fn sides(&self, local: Ino) -> Result<Vec<DentryKey>, Errno>;

    /// Returns the names with conflicts in a directory.
    ///
    /// # Errors
    /// The [`Errno`] of reading the replica.
    fn conflicts_in(&self, parent: Ino) -> Result<Vec<Vec<u8>>, Errno>;

    /// Returns all names with conflicts.
    ///
    /// # Errors
    /// The [`Errno`] of reading the replica.
    fn conflicts(&self) -> Result<Vec<DentryKey>, Errno>;
}

/// Computes changes from the trees.
pub type Plan<'a> = dyn FnMut(&dyn Trees, &mut dyn IdAllocator) -> Result<Changes, PlanError> + 'a;

/// An error of a merge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The trees cannot be read.
    #[error("cannot read the replica: {0}; check the disk of the cache directory")]
    Read(#[from] Errno),
    /// The log does not follow from the base.
    #[error("the log of the volume does not match this replica: {0}")]
    Log(String),
    /// The request cannot be fulfilled.
    #[error("{0}")]
    Cannot(&'static str),
}

/// Reports whether two objects other than directories are equal to a user.
fn is_same(one: &Object, other: &Object) -> bool {
    one.kind == other.kind
        && one.mode == other.mode
        && one.owner == other.owner
        && one.group == other.group
        && one.target == other.target
        && one.xattrs == other.xattrs
        && one.content.is_same(&other.content)
}
