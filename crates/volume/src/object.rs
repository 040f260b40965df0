//! What a volume holds, as all nodes see it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{ObjectId, OwnerId, Seq};

/// What kind of object it is, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// With contents.
    Regular,
    /// With names.
    Directory,
    /// With a target.
    Symlink,
    /// `mkfifo(3)`
    Fifo,
    /// A local socket.
    Socket,
    /// A character device: major and minor number.
    Character(u32, u32),
    /// A block device: major and minor number.
    Block(u32, u32),
}

/// A moment, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Time(pub i64);

/// A part of an object that is changed, and agreed on, by itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Field {
    /// What a regular file holds, with its time of modification.
    Content,
    /// Permission bits.
    Mode,
    /// The user.
    Owner,
    /// The group.
    Group,
    /// The time of modification where it was set by hand, or by a directory's names. Never in conflict: the later wins.
    Modified,
    /// An extended attribute, by name.
    Xattr(Vec<u8>),
}

/// Where the bytes of a stretch of a file come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Segment {
    /// All of a chunk.
    Chunk {
        /// Which.
        id: ChunkId,
        /// Its length in bytes.
        length: u32,
    },
    /// Zeros that are stored nowhere.
    Hole {
        /// Bytes.
        length: u64,
    },
}

impl Segment {
    /// Bytes of the file.
    pub fn length(&self) -> u64 {
        match self {
            Self::Chunk { length, .. } => u64::from(*length),
            Self::Hole { length } => *length,
        }
    }
}

/// The name of immutable bytes: BLAKE3 of them, keyed by the volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkId(pub [u8; 32]);

impl std::fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a regular file holds.
///
/// Two contents are equal if and only if their bytes are, as far as they were cut alike; [`digest`](Self::digest) tells
/// for any two.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Content {
    /// Bytes.
    pub size: u64,
    /// BLAKE3 of all the bytes, keyed by the volume; of none for an empty file.
    pub digest: [u8; 32],
    /// From the first byte on.
    pub layout: Layout,
}

/// How a file is cut into pieces.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Layout {
    /// The bytes themselves, of a very small file.
    Inline(Vec<u8>),
    /// Of a file of few pieces.
    Pieces(Vec<Segment>),
    /// Chunks that hold, one after the other, the pieces of a larger file in the form of `postcard`.
    Indirect(Vec<Segment>),
}

impl Content {
    /// Nothing.
    pub fn empty() -> Self {
        Self { size: 0, digest: [0; 32], layout: Layout::Inline(Vec::new()) }
    }

    /// Whether they hold the same bytes.
    pub fn is_same(&self, other: &Self) -> bool {
        self.size == other.size && self.digest == other.digest
    }
}

/// An object as it is at some place of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Which.
    pub id: ObjectId,
    /// What it is.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky: at most 0o7777.
    pub mode: u16,
    /// The user.
    pub owner: OwnerId,
    /// The group.
    pub group: OwnerId,
    /// The time of modification.
    pub modified: Time,
    /// Where a symlink points.
    pub target: Vec<u8>,
    /// Of a regular file.
    pub content: Content,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// An object in a store: which commit set each part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionedObject {
    /// As it is.
    pub object: Object,
    /// The commit that made it.
    pub created: Seq,
    /// The commits that last set the parts; one that is not there was set by `made`. A removed extended attribute stays.
    pub field_versions: BTreeMap<Field, Seq>,
    /// Names that lead to it.
    pub links: u32,
}

impl VersionedObject {
    /// The commit that last set a part.
    pub fn seq_of(&self, field: &Field) -> Seq {
        self.field_versions.get(field).copied().unwrap_or(self.created)
    }
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LinkName {
    /// The directory.
    pub parent: ObjectId,
    /// 1 to 255 bytes without `/` and NUL.
    pub name: Vec<u8>,
}

/// A name in a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLink {
    /// Where.
    pub at: LinkName,
    /// What it leads to.
    pub child: ObjectId,
    /// The commit that made it.
    pub set: Seq,
}
