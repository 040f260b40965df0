//! An object as this node has it.

use std::sync::Arc;

use bitflags::bitflags;
use rusqlite::Row;

use crate::id::{ObjectId, OwnerId, Seq};
use crate::object::{Kind, Time};

/// The number of the top directory.
pub const ROOT: u64 = 1;

bitflags! {
    /// What was changed here since both sides agreed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Dirty: u32 {
        /// What a file holds, or its time of modification. Set when it is opened to be written: it may hold the same.
        const CONTENT = 1;
        /// Permission bits.
        const MODE = 2;
        /// The user.
        const OWNER = 4;
        /// The group.
        const GROUP = 8;
        /// The time of modification.
        const MODIFIED = 16;
        /// Some extended attribute.
        const XATTR = 32;
        /// The store does not have it.
        const NEW = 64;
    }
}

/// Where the bytes of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheState {
    /// Only in the store.
    Absent,
    /// Some of them are here.
    Partial,
    /// All are here.
    Complete,
}

/// An object as this node has it.
#[derive(Debug, Clone)]
pub struct Inode {
    /// The inode number.
    pub ino: u64,
    /// Its name everywhere.
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
    /// Where a symlink points.
    pub target: Arc<[u8]>,
    /// Bytes of a regular file.
    pub size: u64,
    /// Where they are.
    pub state: CacheState,
    /// It was opened to be written since its content was last known.
    pub maybe_dirty: bool,
    /// Number of names that refer to it.
    pub links: u32,
    /// Directories in it.
    pub subdirs: u32,
    /// The commit that made it; 0: none yet.
    pub created_seq: Seq,
    /// What was changed here.
    pub dirty: Dirty,
    /// Goes up with each change that is made here.
    pub generation: u64,
    /// Its contents are to stay here.
    pub pinned: bool,
    /// It has extended attributes.
    pub xattrs: bool,
    /// When its contents were last opened.
    pub last_opened: Time,
}

impl Inode {
    /// Whether names can be in it.
    pub fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Whether it has contents.
    pub fn is_regular(&self) -> bool {
        self.kind == Kind::Regular
    }

    /// Whether it is there only to show a conflict: no store is told of it.
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

/// What a write leaves of permission bits.
pub(crate) fn without_privileges(mode: u16) -> u16 {
    let group = if mode & GROUP_EXECUTES != 0 { SETGID } else { 0 };
    mode & !(SETUID | group)
}

/// SQLite's integers have a sign; no number of ours uses the topmost bit.
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
