//! The times at which files were last opened, which order eviction, and the space that a file takes.

use super::inode::number;
use std::collections::HashMap;

use rusqlite::Connection;

use super::inode::{Inode, State};

/// Opened files that are remembered until they are written down.
pub(crate) const MAX_RECENT_OPENS: usize = 4096;

/// Which files were opened last.
pub(crate) struct Recent {
    /// Somebody wants to know.
    pub(crate) wanted: bool,
    pub(crate) opened: HashMap<u64, u64>,
    pub(crate) next: u64,
    /// There are rows.
    pub(crate) kept: bool,
}

impl Recent {
    /// Whether anything of it may be in the database.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept
    }

    pub(crate) fn new(db: &Connection) -> rusqlite::Result<Self> {
        let last = db.query_row("SELECT coalesce(max(at), 0) FROM recent", [], |row| row.get(0))?;
        let next = number(last) + 1;
        Ok(Self { wanted: false, opened: HashMap::new(), next, kept: next > 1 })
    }
}

/// Files take whole blocks.
const BLOCK: u64 = 4096;

/// What a file takes, once all of it is here.
pub(crate) fn allocated_bytes(size: u64) -> u64 {
    size.div_ceil(BLOCK).saturating_mul(BLOCK)
}

/// What a node counts for. What is here of partial files is counted by its ranges.
pub(crate) fn weight(node: &Inode) -> u64 {
    if node.is_regular() && node.state == State::Complete { allocated_bytes(node.size) } else { 0 }
}
