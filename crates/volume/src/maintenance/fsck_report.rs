//! The result of [`fsck`](super::fsck()): the counts of what was checked, and the problems that were found.

use std::fmt;

use crate::id::{ObjectId, Seq};
use crate::object::{ChunkId, LinkName};

/// Problems that are told; more are counted.
const MAX_REPORTED_PROBLEMS: usize = 1000;

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// A name leads to nothing.
    Dangling(LinkName),
    /// A name in what is no directory, or is not there.
    DanglingDentry(LinkName),
    /// An object that no name leads to.
    Orphan(ObjectId),
    /// Another count of names is written down than there are: so many are.
    Count(ObjectId, u32, u64),
    /// A directory says that it is elsewhere than its name is.
    Parent(ObjectId),
    /// A directory that is not below the top one.
    Unreached(ObjectId),
    /// A content that makes no sense.
    Content(ObjectId, &'static str),
    /// A piece without a place, or whose place is not in the store.
    Missing(ChunkId, String),
    /// A piece whose bytes are others.
    Damaged(ChunkId, String),
    /// Something that nobody with the key of the volume put there.
    Altered(String),
    /// What a machine says that a user holds is not what it has of it.
    Counted(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |at: &LinkName| String::from_utf8_lossy(&at.name).into_owned();
        match self {
            Self::Dangling(at) => write!(f, "name {:?} in {} leads to nothing", name(at), at.parent),
            Self::DanglingDentry(at) => {
                write!(f, "name {:?} is in {}, which is no directory", name(at), at.parent)
            }
            Self::Orphan(id) => write!(f, "no name leads to {id}"),
            Self::Count(id, links, names) => {
                write!(f, "{id} has {links} names and holds {names}, and says something else")
            }
            Self::Parent(id) => write!(f, "directory {id} says that it is elsewhere"),
            Self::Unreached(id) => write!(f, "directory {id} is not below the top"),
            Self::Content(id, why) => write!(f, "file {id} has {why}"),
            Self::Missing(id, why) => write!(f, "piece {id:?} is missing: {why}"),
            Self::Damaged(id, why) => write!(f, "piece {id:?} is damaged: {why}"),
            Self::Altered(what) => write!(f, "tampered with: {what}"),
            Self::Counted(how) => f.write_str(how),
        }
    }
}

/// What was looked at, and found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// Objects.
    pub objects: u64,
    /// Names.
    pub names: u64,
    /// Pieces that the volume speaks of.
    pub chunks: u64,
    /// Bytes of these, as they are stored.
    pub bytes: u64,
    /// The first of what is wrong.
    pub problems: Vec<Problem>,
    /// How much is.
    pub count: u64,
    /// The last commit, of a volume that held still while its metadata were looked at.
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
