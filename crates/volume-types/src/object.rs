//! The data model of a volume, common to all nodes: objects with their fields, names, and contents as segments. The types are
//! stored in metadata stores and sent in messages, encoded by position with `postcard`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{ObjectId, OwnerId, Seq};

/// The kind of an object, which never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file, with contents.
    Regular,
    /// A directory, with entries.
    Directory,
    /// A symbolic link, with a target.
    Symlink,
    /// A named pipe, `mkfifo(3)`.
    Fifo,
    /// A Unix domain socket.
    Socket,
    /// A character device: major and minor number.
    Character(u32, u32),
    /// A block device: major and minor number.
    Block(u32, u32),
}

/// A point in time, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Time(pub i64);

/// The unit of versioning: a part of an object that is changed and merged separately.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Field {
    /// The content of a regular file, with its modification time.
    Content,
    /// Permission bits.
    Mode,
    /// Owning user.
    Owner,
    /// Owning group.
    Group,
    /// Modification time, set explicitly or by changes of a directory's entries. Never in conflict: the later wins.
    Modified,
    /// An extended attribute, by name.
    Xattr(Vec<u8>),
}

/// A contiguous part of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Segment {
    /// A whole chunk.
    Chunk {
        /// Name of the chunk.
        id: ChunkId,
        /// Length in bytes.
        length: u32,
    },
    /// Zeros that are not stored.
    Hole {
        /// Length in bytes.
        length: u64,
    },
}

impl Segment {
    /// Returns the length in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Chunk { length, .. } => u64::from(*length),
            Self::Hole { length } => *length,
        }
    }
}

/// The name of a chunk, that is of immutable bytes: their BLAKE3 hash, keyed by the volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkId(pub [u8; 32]);

impl std::fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The content of a regular file.
///
/// Values compare equal only if the same bytes were chunked alike; [`is_same`](Self::is_same) compares the bytes of any two, by
/// size and [`digest`](Self::digest).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Content {
    /// Size in bytes.
    pub size: u64,
    /// BLAKE3 hash of all bytes, keyed by the volume; zeros for an empty file.
    pub digest: [u8; 32],
    /// The bytes, from the first on.
    pub layout: Layout,
}

/// How the bytes of a file are stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Layout {
    /// The bytes themselves, of a very small file.
    Inline(Vec<u8>),
    /// The segments of a file that has few.
    Direct(Vec<Segment>),
    /// Chunks that contain, one after the other, the segment lists of a larger file, encoded with `postcard`.
    Indirect(Vec<Segment>),
}

impl Content {
    /// Returns the content of an empty file.
    pub fn empty() -> Self {
        Self { size: 0, digest: [0; 32], layout: Layout::Inline(Vec::new()) }
    }

    /// Reports whether two contents have the same bytes.
    pub fn is_same(&self, other: &Self) -> bool {
        self.size == other.size && self.digest == other.digest
    }
}

/// An object as of some entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its id.
    pub id: ObjectId,
    /// Its kind.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky: at most 0o7777.
    pub mode: u16,
    /// Owning user.
    pub owner: OwnerId,
    /// Owning group.
    pub group: OwnerId,
    /// Modification time.
    pub modified: Time,
    /// Target of a symlink.
    pub target: Vec<u8>,
    /// Content of a regular file.
    pub content: Content,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// An object in a store, with the commits that set its fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionedObject {
    /// The object.
    pub object: Object,
    /// The commit that created it.
    pub created: Seq,
    /// The commits that last set the fields; an absent field was set by `created`. The entry of a removed extended attribute
    /// stays.
    pub field_versions: BTreeMap<Field, Seq>,
    /// Number of names that refer to it.
    pub links: u32,
}

impl VersionedObject {
    /// Returns the commit that last set a field.
    pub fn seq_of(&self, field: &Field) -> Seq {
        self.field_versions.get(field).copied().unwrap_or(self.created)
    }

    /// Returns the commit that created this version.
    pub fn since(&self) -> Seq {
        self.field_versions.values().copied().max().unwrap_or_default().max(self.created)
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
    /// The directory and the name.
    pub at: LinkName,
    /// The object it refers to.
    pub child: ObjectId,
    /// The commit that set it.
    pub set: Seq,
}
