//! Recovery when a replica is opened: discards unsynced data after a machine crash, records unfinished writes, and removes
//! unlinked objects and unknown backing files.

use std::sync::Arc;

use rusqlite::{OptionalExtension as _, params};

use crate::failpoint::{Failpoint, point};
use crate::id::{ObjectId, OwnerId, Seq};
use crate::object::Kind;
use crate::replica::data::backing::{BackingDir, unusable};
use crate::replica::data::open_file;
use crate::replica::db::inode::{CacheState, Dirty, Inode, ROOT, number};
use crate::replica::db::{INO_RESERVATION, ReplicaDb};
use crate::replica::error::OpError;
use crate::replica::{Options, ReplicaError};

pub(crate) fn recover(
    db: &mut ReplicaDb,
    files: &BackingDir,
    options: &Options,
    is_new: bool,
) -> Result<(), ReplicaError> {
    let failed = |fail: OpError| unusable(std::path::Path::new("the replica"), fail.errno.into());
    // The machine may have crashed between the two steps of creating a replica.
    let is_begun = db.db.prepare("SELECT 1 FROM meta WHERE key = 'volume'")?.exists([])?;
    if is_new || !is_begun {
        begin_empty(db, options).map_err(failed)?;
        db.discard_unsynced().map_err(failed)?;
        return db.commit().map_err(failed);
    }
    ensure_matches(db, "volume", &options.volume)?;
    ensure_matches(db, "node", options.node.as_str())?;
    let has_crashed = db.discard_unsynced().map_err(failed)?;
    match options.inherited_lock {
        // The redo log includes every close, and files that are open are adopted one by one.
        Some(_) => keep_unlinked_objects(db).map_err(failed)?,
        None => {
            record_writes(db, files).map_err(failed)?;
            drop_unlinked_objects(db).map_err(failed)?;
        }
    }
    if has_crashed {
        schedule_reappeared(db, files).map_err(failed)?;
    }
    db.commit().map_err(failed)?;
    point(Failpoint::ReplicaRecovered).map_err(|errno| failed(errno.into()))?;
    // Backing files of objects whose creation was never committed have numbers from the last reservations.
    let first = if has_crashed { 0 } else { db.reserved_until().saturating_sub(2 * INO_RESERVATION) };
    remove_unknown(db, files, first)
}

fn begin_empty(db: &mut ReplicaDb, options: &Options) -> Result<(), OpError> {
    db.begin()?;
    let mut set = db.db.prepare_cached("INSERT INTO meta VALUES (?1, ?2)")?;
    set.execute(params!["volume", options.volume])?;
    set.execute(params!["node", options.node.as_str()])?;
    set.execute(params!["cursor", 0])?;
    set.execute(params!["reserved", 2])?;
    drop(set);
    let now = (options.clock)();
    db.save(Inode {
        ino: ROOT,
        id: ObjectId::ROOT,
        kind: Kind::Directory,
        mode: 0o755,
        owner: OwnerId(options.owner.0),
        group: OwnerId(options.owner.1),
        modified: now,
        changed: now,
        target: Arc::from([]),
        size: 0,
        state: CacheState::Complete,
        maybe_dirty: false,
        links: 1,
        subdirs: 0,
        created_seq: Seq(0),
        dirty: Dirty::empty(),
        generation: 0,
        pinned: false,
        xattrs: false,
        last_opened: now,
    });
    Ok(())
}

fn ensure_matches(db: &ReplicaDb, property: &'static str, requested: &str) -> Result<(), ReplicaError> {
    let query = "SELECT value FROM meta WHERE key = ?1";
    let found: Option<String> = db.db.query_row(query, [property], |row| row.get(0)).optional()?;
    match found {
        Some(found) if found == requested => Ok(()),
        found => Err(ReplicaError::Mismatch {
            property,
            found: found.unwrap_or_default(),
            requested: requested.to_owned(),
        }),
    }
}

fn numbers(db: &ReplicaDb, query: &str) -> Result<Vec<u64>, OpError> {
    let mut query = db.db.prepare(query)?;
    let rows = query.query_map([], |row| row.get(0).map(number))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Records size and time of files that were open for writing, from their backing files.
fn record_writes(db: &mut ReplicaDb, files: &BackingDir) -> Result<(), OpError> {
    for num in numbers(db, "SELECT num FROM object WHERE maybe_dirty")? {
        let Some(mut inode) = db.find(num)?.filter(|inode| inode.links > 0) else { continue };
        // A new file whose name never reached the disk's directory is empty.
        let file = files.open_or_create(num)?;
        let (size, modified) = open_file::size_and_mtime(&file)?;
        // A new file that was never opened for writing has not set the time of its backing file yet.
        let is_untouched = (size, inode.size) == (0, 0) && !inode.dirty.contains(Dirty::CONTENT);
        if size != inode.size || modified > inode.modified && !is_untouched {
            db.begin()?;
            inode.size = size;
            inode.modified = inode.modified.max(modified);
            inode.changed = inode.changed.max(modified);
            inode.generation += 1;
            db.save(inode);
        }
    }
    Ok(())
}

/// Removes unlinked objects, which have no references now.
fn drop_unlinked_objects(db: &mut ReplicaDb) -> Result<(), OpError> {
    db.flush()?;
    for num in numbers(db, "SELECT num FROM object WHERE nlink = 0")? {
        if num != ROOT {
            db.mark_unlinked(num)?;
            db.drop_unlinked(num)?;
        }
    }
    Ok(())
}

/// Keeps unlinked objects, which the kernel may refer to. Those that only represent the base stay removed.
fn keep_unlinked_objects(db: &mut ReplicaDb) -> Result<(), OpError> {
    for num in numbers(db, "SELECT num FROM object WHERE nlink = 0")? {
        let Some(inode) = db.find(num)?.filter(|_| num != ROOT) else { continue };
        let is_dropped = inode.state == CacheState::Absent && inode.dirty.is_empty();
        if !is_dropped {
            db.mark_unlinked(num)?;
        }
    }
    Ok(())
}

/// Schedules the removal of backing files that reappeared, with their old data, after a machine crash: nothing must be
/// fetched into them.
fn schedule_reappeared(db: &mut ReplicaDb, files: &BackingDir) -> Result<(), OpError> {
    db.flush()?;
    for num in files.numbers_from(0)? {
        let query = "SELECT 1 FROM object WHERE num = ?1 AND kind = 0 AND state = 0";
        if db.db.prepare_cached(query)?.exists([num as i64])? {
            db.schedule_unlink(num)?;
        }
    }
    Ok(())
}

/// Removes backing files, from a number on, that belong to no object.
fn remove_unknown(db: &ReplicaDb, files: &BackingDir, first: u64) -> Result<(), ReplicaError> {
    let unusable = |error| unusable(std::path::Path::new("data"), error);
    for num in files.numbers_from(first).map_err(unusable)? {
        let is_known =
            |num: u64| db.db.prepare_cached("SELECT 1 FROM object WHERE num = ?1")?.exists([num as i64]);
        let is_known = is_known(num).map_err(|error| unusable(OpError::from(error).errno.into()))?;
        if !is_known {
            files.remove(num).map_err(unusable)?;
        }
    }
    Ok(())
}
