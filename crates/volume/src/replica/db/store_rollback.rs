//! A store that is not what was read of it any more.

use rusqlite::Connection;
use rustix::io::Errno;

use crate::replica::Replica;

/// Whether the store was so when the replica was last open.
pub(crate) fn load(db: &Connection) -> rusqlite::Result<bool> {
    db.prepare("SELECT 1 FROM meta WHERE key = 'distrusted'")?.exists([])
}

impl Replica {
    /// Notes that the store went back, or that it is as it should be again. What is here may be nowhere else in between: nothing
    /// leaves, also after a restart, whatever the limit is.
    ///
    /// # Errors
    /// EIO, ENOSPC.
    pub fn set_rollback_detected(&self, is_distrusted: bool) -> Result<(), Errno> {
        if self.inner.core.lock().rollback_detected == is_distrusted {
            return Ok(());
        }
        self.change(|core, _| {
            core.begin()?;
            match is_distrusted {
                true => core.db.execute("INSERT OR REPLACE INTO meta VALUES ('distrusted', 1)", [])?,
                false => core.db.execute("DELETE FROM meta WHERE key = 'distrusted'", [])?,
            };
            core.rollback_detected = is_distrusted;
            Ok(())
        })
    }
}
