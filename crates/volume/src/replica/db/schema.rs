//! The database schema of a replica, and the migration from older formats.

use rusqlite::{Connection, OptionalExtension as _};

use crate::replica::ReplicaError;

/// The format that this version writes. Older ones are migrated when opened, newer ones refused.
pub(crate) const FORMAT: u32 = 4;

/// `object.num` is the inode number that users see; it is never reused. `link.set_seq` is 0 until the store has the name.
/// Rows of `base_*` hold the base versions of objects and names that have local changes: no object for a new one, no child
/// for a name that did not exist. `n` is the order of the first changes.
const TABLES: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE object (
    num INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, kind INTEGER NOT NULL, device INTEGER NOT NULL,
    mode INTEGER NOT NULL, owner INTEGER NOT NULL, grp INTEGER NOT NULL, modified INTEGER NOT NULL,
    changed INTEGER NOT NULL, target BLOB, size INTEGER NOT NULL, content BLOB, state INTEGER NOT NULL,
    maybe_dirty INTEGER NOT NULL, nlink INTEGER NOT NULL, subdirs INTEGER NOT NULL, made INTEGER NOT NULL,
    dirty INTEGER NOT NULL, generation INTEGER NOT NULL, pinned INTEGER NOT NULL, xattrs INTEGER NOT NULL,
    used INTEGER NOT NULL);
CREATE TABLE field_seq (num INTEGER, field BLOB, seq INTEGER NOT NULL, PRIMARY KEY (num, field)) WITHOUT ROWID;
CREATE TABLE link (parent INTEGER, name BLOB, child INTEGER NOT NULL, set_seq INTEGER NOT NULL,
    PRIMARY KEY (parent, name)) WITHOUT ROWID;
CREATE INDEX link_child ON link (child);
CREATE TABLE xattr (num INTEGER, name BLOB, value BLOB NOT NULL, PRIMARY KEY (num, name)) WITHOUT ROWID;
CREATE TABLE base_object (num INTEGER PRIMARY KEY, object BLOB, n INTEGER NOT NULL);
CREATE INDEX base_object_order ON base_object (n);
CREATE TABLE base_link (parent INTEGER, name BLOB, child INTEGER, set_seq INTEGER NOT NULL, n INTEGER NOT NULL,
    PRIMARY KEY (parent, name)) WITHOUT ROWID;
CREATE INDEX base_link_order ON base_link (n);
CREATE INDEX base_link_child ON base_link (child) WHERE child IS NOT NULL;
CREATE TABLE present (num INTEGER, first INTEGER, past INTEGER NOT NULL, PRIMARY KEY (num, first)) WITHOUT ROWID;
CREATE TABLE doomed (num INTEGER PRIMARY KEY);
CREATE TABLE conflict (n INTEGER PRIMARY KEY, kind INTEGER NOT NULL, parent INTEGER, name BLOB, num_local INTEGER,
    detail BLOB);
";

/// Added in format 2: the order in which files were last opened, by an increasing number; indexes of uncached files and of
/// pinned objects.
const EVICTION_ORDER: &str = "
CREATE TABLE recent (num INTEGER PRIMARY KEY, at INTEGER NOT NULL);
CREATE INDEX object_away ON object (num) WHERE kind = 0 AND state < 2;
CREATE INDEX object_pinned ON object (num) WHERE pinned = 1;
";

/// Added in format 3: files with fetched data that may not be durable.
const UNSYNCED: &str = "CREATE TABLE unsure (num INTEGER PRIMARY KEY);";

/// Added in format 4: the usage of each user, of linked objects.
const USAGE: &str =
    "CREATE TABLE usage (owner INTEGER PRIMARY KEY, bytes INTEGER NOT NULL, objects INTEGER NOT NULL);";

/// Added without a new format, since older versions of this one work with all of it: an index of changed objects that the
/// store has, since new ones are pushed with their names; an index of files that the store does not have and that are not
/// completely cached; files that were cached when they were replaced; the last commits of each writer of a sealed log.
const INDEXES: &str = "
CREATE INDEX IF NOT EXISTS base_object_changed ON base_object (n) WHERE object IS NOT NULL;
CREATE INDEX IF NOT EXISTS object_lone ON object (num) WHERE kind = 0 AND state < 2 AND made = 0;
CREATE TABLE IF NOT EXISTS replaced (num INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS writer (id BLOB PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
";

/// Sets up a connection whose commits do not wait for the disk: an operation that must be durable waits by itself.
pub(crate) fn prepare(db: &Connection) -> Result<(), ReplicaError> {
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    // The committer makes checkpoints, concurrently with the writer.
    db.pragma_update(None, "wal_autocheckpoint", 0)?;
    // After a complete checkpoint, the next commit restarts the WAL and truncates it: its length shows how much is to be
    // checkpointed.
    db.pragma_update(None, "journal_size_limit", 0)?;
    db.pragma_update(None, "cache_size", -32_768)?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    db.set_prepared_statement_cache_capacity(128);
    db.busy_timeout(std::time::Duration::from_secs(10))?;
    Ok(())
}

/// Creates the tables, or checks their format and migrates older ones. Returns whether they are new.
pub(crate) fn create(db: &Connection) -> Result<bool, ReplicaError> {
    let is_present =
        db.query_row("SELECT 1 FROM sqlite_master WHERE name = 'meta'", [], |_| Ok(())).optional()?.is_some();
    if is_present {
        let found: u32 = db.query_row("SELECT value FROM meta WHERE key = 'format'", [], |row| row.get(0))?;
        if !(1..=FORMAT).contains(&found) {
            return Err(ReplicaError::Format { found, known: FORMAT });
        }
        // The bytes of cached files were not counted before.
        let counted = "INSERT OR REPLACE INTO meta SELECT 'here',
            (SELECT coalesce(sum((size + 4095) / 4096 * 4096), 0) FROM object WHERE kind = 0 AND state = 2)
            + (SELECT coalesce(sum(past - first), 0) FROM present);";
        let usage =
            format!("{USAGE} INSERT INTO usage {};", crate::replica::db::usage_counts::COUNT_USAGE_SQL);
        let steps = match found {
            1 => format!("{EVICTION_ORDER} {counted} {UNSYNCED} {usage}"),
            2 => format!("{UNSYNCED} {usage}"),
            3 => usage,
            _ => {
                db.execute_batch(INDEXES)?;
                return Ok(false);
            }
        };
        db.execute_batch(&format!(
            "BEGIN; {steps} {INDEXES} UPDATE meta SET value = {FORMAT} WHERE key = 'format'; COMMIT;"
        ))?;
        return Ok(false);
    }
    db.execute_batch(&format!(
        "BEGIN; {TABLES} {EVICTION_ORDER} {UNSYNCED} {USAGE} {INDEXES} INSERT INTO meta VALUES ('format', \
            {FORMAT}); COMMIT;"
    ))?;
    Ok(true)
}
