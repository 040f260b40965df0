//! The SQLite schema, migrations, and the header that identifies a store's file. Files are created with mode 0600, and a file
//! becomes a store in one transaction.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::fault;
use crate::StoreError;

/// `application_id` in the file's header: "Shnt".
const APPLICATION: i32 = 0x5368_6e74;
/// Version of the tables and of their blobs.
const FORMAT: i32 = 2;

// Objects are found by random ids: a narrow index takes the random writes, the rows themselves are appended.
const TABLES: &str = "
CREATE TABLE about (one INTEGER PRIMARY KEY CHECK (one = 0), head INTEGER NOT NULL, forgotten INTEGER NOT NULL,
                    description BLOB NOT NULL);
CREATE TABLE object (n INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, parent BLOB, names INTEGER NOT NULL,
                     body BLOB NOT NULL);
CREATE TABLE link (parent BLOB NOT NULL, name BLOB NOT NULL, child BLOB NOT NULL, seq INTEGER NOT NULL,
                   PRIMARY KEY (parent, name)) WITHOUT ROWID;
CREATE TABLE log (seq INTEGER PRIMARY KEY, node TEXT NOT NULL, at INTEGER NOT NULL, change BLOB NOT NULL);
CREATE TABLE chunk (id BLOB PRIMARY KEY, key TEXT NOT NULL, place INTEGER NOT NULL, stored INTEGER NOT NULL,
                    length INTEGER NOT NULL, gone INTEGER) WITHOUT ROWID;
CREATE TABLE answer (n INTEGER PRIMARY KEY, node TEXT NOT NULL, token BLOB NOT NULL, answer BLOB NOT NULL,
                     UNIQUE (node, token));
";

// Since format 2. `kept`: history is complete from this commit on. `latest`: time of the last commit. Past rows are appended
// too, in the order of their commits.
const TABLES_SINCE_2: &str = "
ALTER TABLE about ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;
ALTER TABLE about ADD COLUMN latest INTEGER NOT NULL DEFAULT 0;
UPDATE about SET kept = head;
CREATE TABLE past_object (n INTEGER PRIMARY KEY, id BLOB NOT NULL, until INTEGER NOT NULL, body BLOB NOT NULL,
                          UNIQUE (id, until));
CREATE TABLE past_link (n INTEGER PRIMARY KEY, parent BLOB NOT NULL, name BLOB NOT NULL, until INTEGER NOT NULL,
                        since INTEGER NOT NULL, child BLOB NOT NULL, UNIQUE (parent, name, until));
CREATE INDEX past_link_child ON past_link (child);
CREATE TABLE setting (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
";

/// Maximum time that a commit waits for the write lock of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let db = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|error| StoreError::Unreachable(format!("{}: {error}", path.display())))?;
    db.busy_timeout(BUSY_TIMEOUT).map_err(fault)?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(db)
}

fn settings(db: &Connection) -> Result<(), StoreError> {
    // FULL: a commit is durable when it returns; NORMAL could lose the last ones in a power failure. MEMORY: a sandboxed
    // process has no directory for temporary files.
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY;
         PRAGMA journal_size_limit = 67108864; PRAGMA wal_autocheckpoint = 4000;",
    )
    .map_err(fault)
}

/// Removes the permissions of group and others, if the process owns the file. Errors are ignored.
pub fn tighten(path: &Path) {
    shunt_volume_types::private::tighten(path).ok();
}

/// Restricts the permissions of a database and its side files. SQLite creates the latter with the mode of the database.
pub(crate) fn tighten_all(path: &Path) {
    for part in ["", "-wal", "-shm", "-leases", "-leases-wal", "-leases-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(part);
        tighten(Path::new(&file));
    }
}

/// Opens an existing file, and migrates it from format 1.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let number = |pragma| db.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0)).map_err(fault);
    let (application, format) = (number("application_id")?, number("user_version")?);
    let refuse = |found: String, advice| Err(StoreError::Format { found, known: FORMAT as u32, advice });
    if application != APPLICATION {
        return refuse(
            "unknown".into(),
            "this database is not the store of a volume; choose another location",
        );
    }
    match format {
        FORMAT => {}
        1 => migrate(&db)?,
        newer if newer > FORMAT => {
            return refuse(newer.to_string(), "use the version of shunt that created it");
        }
        other => return refuse(other.to_string(), "its creation was interrupted; create the volume again"),
    }
    settings(&db)?;
    Ok(db)
}

/// Migrates from format 1. One process does it; concurrent ones wait for the lock and find it done.
fn migrate(db: &Connection) -> Result<(), StoreError> {
    db.execute_batch("BEGIN IMMEDIATE").map_err(fault)?;
    let done = (|| {
        if db.pragma_query_value(None, "user_version", |row| row.get::<_, i32>(0))? == 1 {
            db.execute_batch(TABLES_SINCE_2)?;
            db.pragma_update(None, "user_version", FORMAT)?;
        }
        db.execute_batch("COMMIT")
    })();
    if done.is_err() {
        db.execute_batch("ROLLBACK").ok();
    }
    done.map_err(fault)
}

/// Creates an empty database in a file or in memory, without tables.
pub(super) fn create(path: Option<&Path>) -> Result<Connection, StoreError> {
    let db = match path {
        Some(path) => {
            // Only if the file does not exist: closing any descriptor of a file releases all POSIX locks of this process on it.
            // Errors are reported when the file is opened.
            fs::File::options().write(true).create_new(true).mode(0o600).open(path).ok();
            tighten_all(path);
            connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?
        }
        None => Connection::open_in_memory().map_err(fault)?,
    };
    settings(&db)?;
    Ok(db)
}

/// Creates the tables, within the transaction that also writes the descriptor: a file is a complete store or none.
pub(super) fn fill(db: &Connection) -> Result<(), StoreError> {
    db.execute_batch(TABLES).map_err(fault)?;
    db.execute_batch(TABLES_SINCE_2).map_err(fault)?;
    db.pragma_update(None, "application_id", APPLICATION).map_err(fault)?;
    db.pragma_update(None, "user_version", FORMAT).map_err(fault)
}

/// Reports whether the database has tables already.
pub(super) fn is_filled(db: &Connection) -> Result<bool, StoreError> {
    db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))
        .map(|tables| tables > 0)
        .map_err(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SQLite's ENABLE_MEMORY_MANAGEMENT shares one page cache among all databases of a process, so that a busy database
    /// rereads the roots of its trees from the file for each query. `.cargo/config.toml` removes the option.
    #[test]
    fn each_database_has_a_cache_of_its_own() {
        let db = Connection::open_in_memory().unwrap();
        let mut query = db.prepare("PRAGMA compile_options").unwrap();
        let options: Vec<String> =
            query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert!(options.iter().any(|one| one.starts_with("THREADSAFE")), "{options:?}");
        assert!(!options.iter().any(|one| one == "ENABLE_MEMORY_MANAGEMENT"), "{options:?}");
    }
}
