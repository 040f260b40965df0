//! The result of [`fsck`](super::fsck()): the counts of what was checked, and the problems that were found.

use std::fmt;

use crate::id::{ObjectId, Seq};
use crate::object::{ChunkId, LinkName};

/// Maximum number of problems that are reported; more are only counted.
const MAX_REPORTED_PROBLEMS: usize = 1000;

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// A name refers to an object that does not exist.
    Dangling(LinkName),
    /// A name's parent does not exist or is not a directory.
    DanglingDentry(LinkName),
    /// An object has no name.
    Orphan(ObjectId),
    /// The recorded counts differ from the actual ones, which are: names of the object, entries in it.
    Count(ObjectId, u32, u64),
    /// The recorded parent of a directory is not the one that its name is in.
    Parent(ObjectId),
    /// A directory is not reachable from the root.
    Unreached(ObjectId),
    /// A content is invalid, for this reason.
    Content(ObjectId, &'static str),
    /// A chunk has no location, or none within a stored object.
    Missing(ChunkId, String),
    /// The bytes of a chunk do not match its name.
    Damaged(ChunkId, String),
    /// Data that does not authenticate with the key of the volume.
    Tampered(String),
    /// The usage that a replica has recorded for a user is wrong.
    QuotaUsage(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |at: &LinkName| String::from_utf8_lossy(&at.name).into_owned();
        match self {
            Self::Dangling(at) => {
                write!(f, "name {:?} in directory {} refers to no object", name(at), at.parent)
            }
            Self::DanglingDentry(at) => {
                write!(f, "name {:?} is in {}, which is not a directory", name(at), at.parent)
            }
            Self::Orphan(id) => write!(f, "object {id} has no name"),
            Self::Count(id, links, names) => {
                write!(
                    f,
                    "object {id}: {links} names refer to it and {names} entries are in \
                    it; the recorded counts differ"
                )
            }
            Self::Parent(id) => write!(f, "directory {id} records another parent than the one that names it"),
            Self::Unreached(id) => write!(f, "directory {id} is not reachable from the root"),
            Self::Content(id, why) => write!(f, "file {id} has invalid content: {why}"),
            Self::Missing(id, why) => write!(f, "chunk {id:?} is missing: {why}"),
            Self::Damaged(id, why) => write!(f, "chunk {id:?} is damaged: {why}"),
            Self::Tampered(what) => write!(f, "tampered with: {what}"),
            Self::QuotaUsage(how) => f.write_str(how),
        }
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// Number of objects.
    pub objects: u64,
    /// Number of names.
    pub names: u64,
    /// Number of referenced chunks.
    pub chunks: u64,
    /// Stored bytes of these chunks.
    pub bytes: u64,
    /// The first problems, at most 1000.
    pub problems: Vec<Problem>,
    /// Number of all problems.
    pub count: u64,
    /// The last commit, if the volume did not change during the check of the metadata.
    pub at: Option<Seq>,
}

impl Checked {
    pub(super) fn report(&mut self, problem: Problem) {
        self.count += 1;
        if self.problems.len() < MAX_REPORTED_PROBLEMS {
            self.problems.push(problem);
        }
    }
}
