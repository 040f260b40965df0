//! The times at which files were last opened, which order eviction, and the space that a file takes.

use super::inode::number;
use std::collections::HashMap;

use rusqlite::Connection;

use super::inode::{CacheState, Inode};

/// Opened files that are remembered until they are written down.
pub(crate) const MAX_RECENT_OPENS: usize = 4096;

/// Which files were opened last.
pub(crate) struct RecentOpens {
    /// Somebody wants to know.
    pub(crate) enabled: bool,
    pub(crate) opened: HashMap<u64, u64>,
    pub(crate) next: u64,
    /// There are rows.
    pub(crate) has_rows: bool,
}

impl RecentOpens {
    /// Whether anything of it may be in the database.
    pub(crate) fn may_have_rows(&self) -> bool {
        self.has_rows
    }

    pub(crate) fn new(db: &Connection) -> rusqlite::Result<Self> {
        let last = db.query_row("SELECT coalesce(max(at), 0) FROM recent", [], |row| row.get(0))?;
        let next = number(last) + 1;
        Ok(Self { enabled: false, opened: HashMap::new(), next, has_rows: next > 1 })
    }
}

/// Files take whole blocks.
const BLOCK_BYTES: u64 = 4096;

/// What a file takes, once all of it is here.
pub(crate) fn allocated_bytes(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}

/// What a node counts for. What is here of partial files is counted by its ranges.
pub(crate) fn counted_bytes(node: &Inode) -> u64 {
    if node.is_regular() && node.state == CacheState::Complete { allocated_bytes(node.size) } else { 0 }
}
