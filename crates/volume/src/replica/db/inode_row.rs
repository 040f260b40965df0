//! The row of an inode in the table `object`, without its content.

use rusqlite::{CachedStatement, params};
use serde::{Deserialize, Serialize};

use super::inode::{Inode, kind_code};

/// Inserts or replaces a row. The column `content` stays.
pub(super) const UPSERT: &str =
    "INSERT INTO object (num, id, kind, device, mode, owner, grp, modified, changed, target, size, state,
         maybe_dirty, nlink, subdirs, made, dirty, generation, pinned, xattrs, used)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)
     ON CONFLICT (num) DO UPDATE SET id = ?2, mode = ?5, owner = ?6, grp = ?7, modified = ?8, changed = ?9,
         size = ?11, state = ?12, maybe_dirty = ?13, nlink = ?14, subdirs = ?15, made = ?16, dirty = ?17,
         generation = ?18, pinned = ?19, xattrs = ?20, used = ?21";

/// The columns of a row.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct InodeRow {
    num: u64,
    id: [u8; 16],
    kind: u8,
    device: i64,
    mode: u16,
    owner: u32,
    group: u32,
    modified: i64,
    changed: i64,
    target: Option<Vec<u8>>,
    size: u64,
    state: u8,
    maybe_dirty: bool,
    links: u32,
    subdirs: u32,
    created_seq: u64,
    dirty: u32,
    generation: u64,
    pinned: bool,
    xattrs: bool,
    last_opened: i64,
}

impl From<&Inode> for InodeRow {
    fn from(inode: &Inode) -> Self {
        let (kind, device) = kind_code(inode.kind);
        Self {
            num: inode.ino,
            id: inode.id.to_bytes(),
            kind,
            device,
            mode: inode.mode,
            owner: inode.owner.0,
            group: inode.group.0,
            modified: inode.modified.0,
            changed: inode.changed.0,
            target: (!inode.target.is_empty()).then(|| inode.target.to_vec()),
            size: inode.size,
            state: inode.state as u8,
            maybe_dirty: inode.maybe_dirty,
            links: inode.links,
            subdirs: inode.subdirs,
            created_seq: inode.created_seq.0,
            dirty: inode.dirty.bits(),
            generation: inode.generation,
            pinned: inode.pinned,
            xattrs: inode.xattrs,
            last_opened: inode.last_opened.0,
        }
    }
}

/// Writes a row. `statement` is [`UPSERT`].
pub(super) fn upsert(statement: &mut CachedStatement<'_>, row: &InodeRow) -> rusqlite::Result<()> {
    statement.execute(params![
        row.num as i64,
        row.id,
        row.kind,
        row.device,
        row.mode,
        row.owner,
        row.group,
        row.modified,
        row.changed,
        row.target,
        row.size as i64,
        row.state,
        row.maybe_dirty,
        row.links,
        row.subdirs,
        row.created_seq as i64,
        row.dirty,
        row.generation as i64,
        row.pinned,
        row.xattrs,
        row.last_opened,
    ])?;
    Ok(())
}
