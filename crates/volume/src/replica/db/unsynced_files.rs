//! Fetched files that have not been fsynced yet. After a machine crash their data is discarded and fetched again.

use std::collections::HashMap;

use rusqlite::Connection;

use super::inode::number;

/// Unsynced files by inode number, with a counter that changes when more data is fetched.
#[derive(Default)]
pub(crate) struct UnsyncedFiles {
    pub(crate) files: HashMap<u64, u64>,
    pub(crate) next: u64,
}

impl UnsyncedFiles {
    pub(crate) fn load(db: &Connection) -> rusqlite::Result<Self> {
        let mut query = db.prepare("SELECT num FROM unsure")?;
        let files =
            query.query_map([], |row| Ok((number(row.get(0)?), 0)))?.collect::<rusqlite::Result<_>>()?;
        Ok(Self { files, next: 1 })
    }
}
