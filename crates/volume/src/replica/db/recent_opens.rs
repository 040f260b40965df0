//! The times at which files were last opened, which order eviction, and the space that a file takes.

use std::collections::HashMap;

use rusqlite::Connection;

use super::inode::number;
use super::inode::{CacheState, Inode};

/// Opens kept in memory before they are written to the database.
pub(crate) const MAX_RECENT_OPENS: usize = 4096;

/// The order in which files were last opened.
pub(crate) struct RecentOpens {
    /// Opens are recorded only while this is set.
    pub(crate) enabled: bool,
    pub(crate) opened: HashMap<u64, u64>,
    pub(crate) next: u64,
    /// The table has rows.
    pub(crate) has_rows: bool,
}

impl RecentOpens {
    /// Reports whether the database may have rows of it.
    pub(crate) fn may_have_rows(&self) -> bool {
        self.has_rows
    }

    pub(crate) fn new(db: &Connection) -> rusqlite::Result<Self> {
        let last = db.query_row("SELECT coalesce(max(at), 0) FROM recent", [], |row| row.get(0))?;
        let next = number(last) + 1;
        Ok(Self { enabled: false, opened: HashMap::new(), next, has_rows: next > 1 })
    }
}

/// Files occupy whole blocks.
const BLOCK_BYTES: u64 = 4096;

/// Returns the bytes that a completely cached file occupies.
pub(crate) fn allocated_bytes(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}

/// Returns the bytes an inode accounts for. The cached data of partial files is accounted for by its ranges.
pub(crate) fn counted_bytes(inode: &Inode) -> u64 {
    if inode.is_regular() && inode.state == CacheState::Complete { allocated_bytes(inode.size) } else { 0 }
}
