//! Detected rollback of the store, which then lacks commits that were read from it.

use rusqlite::Connection;
use rustix::io::Errno;

use crate::replica::Replica;

/// Reports whether the store was rolled back when the replica was last open.
pub(crate) fn load(db: &Connection) -> rusqlite::Result<bool> {
    db.prepare("SELECT 1 FROM meta WHERE key = 'distrusted'")?.exists([])
}

impl Replica {
    /// Records that the store was rolled back, or is valid again. In between, local contents may be the only copies: nothing
    /// is evicted, above the limit, too, and also after a restart.
    ///
    /// # Errors
    /// EIO, ENOSPC.
    pub(crate) fn set_rollback_detected(&self, detected: bool) -> Result<(), Errno> {
        if self.inner.db.lock().rollback_detected == detected {
            return Ok(());
        }
        self.change(|db, _| {
            db.begin()?;
            match detected {
                true => db.db.execute("INSERT OR REPLACE INTO meta VALUES ('distrusted', 1)", [])?,
                false => db.db.execute("DELETE FROM meta WHERE key = 'distrusted'", [])?,
            };
            db.rollback_detected = detected;
            Ok(())
        })
    }
}
