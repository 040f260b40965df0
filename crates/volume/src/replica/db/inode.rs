//! Inodes: the metadata of an object on this node, with its cache and synchronisation state.

use std::sync::Arc;

use bitflags::bitflags;
use rusqlite::Row;

use crate::id::{ObjectId, OwnerId, Seq};
use crate::object::{Kind, Time};

/// The inode number of the root directory.
pub const ROOT: u64 = 1;

bitflags! {
    /// Fields changed here since the base version.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Dirty: u32 {
        /// The content of a file, or its modification time. Set when the file is opened for writing: it may be unchanged.
        const CONTENT = 1;
        /// Permission bits.
        const MODE = 2;
        /// The owning user.
        const OWNER = 4;
        /// The owning group.
        const GROUP = 8;
        /// The modification time.
        const MODIFIED = 16;
        /// An extended attribute.
        const XATTR = 32;
        /// The store does not have the object.
        const NEW = 64;
    }
}

/// How much of a file is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheState {
    /// Nothing: the content is only in the store.
    Absent,
    /// Some ranges.
    Partial,
    /// The whole file.
    Complete,
}

/// The inode of an object on this node.
#[derive(Debug, Clone)]
pub struct Inode {
    /// The inode number.
    pub ino: u64,
    /// The object id, which is the same on all nodes.
    pub id: ObjectId,
    /// Its kind.
    pub kind: Kind,
    /// Permission bits: at most 0o7777.
    pub mode: u16,
    /// Owning user.
    pub owner: OwnerId,
    /// Owning group.
    pub group: OwnerId,
    /// Last change of the contents.
    pub modified: Time,
    /// Last change of anything, by this node's clock.
    pub changed: Time,
    /// The target of a symlink.
    pub target: Arc<[u8]>,
    /// The size of a regular file in bytes.
    pub size: u64,
    /// How much of it is cached.
    pub state: CacheState,
    /// It was opened for writing since its content was last known.
    pub maybe_dirty: bool,
    /// Number of names that refer to it.
    pub links: u32,
    /// The number of subdirectories.
    pub subdirs: u32,
    /// The commit that created it; 0 if there is none yet.
    pub created_seq: Seq,
    /// Fields changed here.
    pub dirty: Dirty,
    /// Incremented by each local change.
    pub generation: u64,
    /// Its contents are pinned in the cache.
    pub pinned: bool,
    /// It has extended attributes.
    pub xattrs: bool,
    /// The access time, known to this node only.
    pub last_opened: Time,
}

impl Inode {
    /// Reports whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Reports whether it is a regular file.
    pub fn is_regular(&self) -> bool {
        self.kind == Kind::Regular
    }

    /// Reports whether it exists only to present a conflict, and is not in the store.
    pub(crate) fn is_conflict_only(&self) -> bool {
        self.created_seq == Seq(0) && self.dirty.is_empty() && self.ino != ROOT
    }

    pub(crate) const COLUMNS: &str = "num, id, kind, device, mode, owner, grp, modified, changed, target, size, state, \
         maybe_dirty, nlink, subdirs, made, dirty, generation, pinned, xattrs, used";

    pub(crate) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let device: i64 = row.get(3)?;
        let target: Option<Vec<u8>> = row.get(9)?;
        Ok(Self {
            ino: number(row.get(0)?),
            id: ObjectId::from_bytes(row.get(1)?),
            kind: kind(row.get(2)?, device as u64)
                .ok_or(rusqlite::Error::IntegralValueOutOfRange(2, device))?,
            mode: row.get(4)?,
            owner: OwnerId(row.get(5)?),
            group: OwnerId(row.get(6)?),
            modified: Time(row.get(7)?),
            changed: Time(row.get(8)?),
            target: target.unwrap_or_default().into(),
            size: number(row.get(10)?),
            state: match row.get::<_, u8>(11)? {
                0 => CacheState::Absent,
                1 => CacheState::Partial,
                _ => CacheState::Complete,
            },
            maybe_dirty: row.get(12)?,
            links: row.get(13)?,
            subdirs: row.get(14)?,
            created_seq: Seq(number(row.get(15)?)),
            dirty: Dirty::from_bits_truncate(row.get(16)?),
            generation: number(row.get(17)?),
            pinned: row.get(18)?,
            xattrs: row.get(19)?,
            last_opened: Time(row.get(20)?),
        })
    }
}

const SETUID: u16 = 0o4000;

const SETGID: u16 = 0o2000;

const GROUP_EXECUTES: u16 = 0o010;

/// Returns permission bits without those that a write clears.
pub(crate) fn without_privileges(mode: u16) -> u16 {
    let group = if mode & GROUP_EXECUTES != 0 { SETGID } else { 0 };
    mode & !(SETUID | group)
}

/// Converts a stored number. SQLite's integers are signed; no number of ours uses the topmost bit.
pub(crate) fn number(stored: i64) -> u64 {
    stored as u64
}

pub(crate) fn kind_code(kind: Kind) -> (u8, i64) {
    let device = |major: u32, minor: u32| (u64::from(major) << 32 | u64::from(minor)) as i64;
    match kind {
        Kind::Regular => (0, 0),
        Kind::Directory => (1, 0),
        Kind::Symlink => (2, 0),
        Kind::Fifo => (3, 0),
        Kind::Socket => (4, 0),
        Kind::Character(major, minor) => (5, device(major, minor)),
        Kind::Block(major, minor) => (6, device(major, minor)),
    }
}

fn kind(code: u8, device: u64) -> Option<Kind> {
    let (major, minor) = ((device >> 32) as u32, device as u32);
    Some(match code {
        0 => Kind::Regular,
        1 => Kind::Directory,
        2 => Kind::Symlink,
        3 => Kind::Fifo,
        4 => Kind::Socket,
        5 => Kind::Character(major, minor),
        6 => Kind::Block(major, minor),
        _ => return None,
    })
}
