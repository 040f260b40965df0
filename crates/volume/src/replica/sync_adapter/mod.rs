//! Implements [`SyncReplica`] for a replica: presents its local and base trees without conflict directories, applies merge
//! plans, and uploads contents.

mod apply_plan;
pub(crate) mod apply_transaction;
pub(crate) mod conflicts;
pub(crate) mod foreground;
pub(crate) mod local_changes;
mod log_position;
mod open_snapshot;
mod stable_reader;
mod tree_view;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::{OptionalExtension as _, params};
use rustix::io::Errno;
use shunt_change_stamp::ChangeStamp;

use crate::chunks::{ContentError, ContentStore};
use crate::failpoint::{Failpoint, point};
use crate::id::Seq;
use crate::maintenance::GRACE_PERIOD;
use crate::merge::{
    Conflict, DentryKey, DirtySet, FileUpload, IdAllocator, Ino, Plan, PlanError, Side, Trees, keep_both,
    resolve,
};
use crate::object::{ChunkId, Content, Layout, Object, Segment, Time};
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::number;
use crate::replica::error::Result;
use crate::replica::{Applying, Replica};
use crate::store::log_verifier::VerifiedPosition;
use crate::store::{MetaStore, StoreError};
use crate::sync::{LogFingerprint, Outbox, SyncError, SyncReplica, refused};

use crate::replica::db::conflict_dirs::ConflictDirs;
use open_snapshot::ReadAttempts;
use stable_reader::StableReader;
use tree_view::TreeView;

/// Contents of locally changed files, by inode number.
pub(super) type ContentCache = Mutex<HashMap<Ino, CachedContent>>;

/// The content of a file when it was read.
#[derive(Clone)]
pub(super) struct CachedContent {
    /// The generation of the file at that time.
    generation: u64,
    content: Content,
    /// The change stamp, if the file was open for writing.
    open: Option<ChangeStamp>,
}

/// Maximum number of cached contents; dropped ones are read again.
const MAX_CACHED_CONTENTS: usize = 65_536;

/// Maximum time, in nanoseconds, for uploads before they are committed or at least made known to the store. Unreferenced
/// chunks are deleted after a much longer time.
const UPLOAD_TIMEOUT_NANOS: i64 = (GRACE_PERIOD.as_nanos() / 4) as i64;

/// A replica with the object store that it uploads to.
pub struct SyncAdapter {
    replica: Arc<Replica>,
    meta: Arc<dyn MetaStore>,
    contents: ContentStore,
    content_cache: ContentCache,
    attempts: ReadAttempts,
}

impl std::fmt::Debug for SyncAdapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SyncAdapter").field("replica", &self.replica).finish_non_exhaustive()
    }
}

impl SyncAdapter {
    /// Creates the adapter. Contents are uploaded to `contents`, whose chunks `meta` knows.
    pub fn new(replica: Arc<Replica>, meta: Arc<dyn MetaStore>, contents: ContentStore) -> Self {
        Self {
            replica,
            meta,
            contents,
            content_cache: ContentCache::default(),
            attempts: ReadAttempts::default(),
        }
    }

    /// Returns the replica.
    pub fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }

    fn with<T>(&self, work: impl FnOnce(&mut Applying<'_>) -> Result<T, PlanError>) -> Result<T, PlanError> {
        let mut failed = None;
        let done = self.replica.apply(|applying| {
            work(applying).map_err(|error| {
                let errno = if let PlanError::Read(errno) = error { errno } else { Errno::IO };
                failed = Some(error);
                errno
            })
        });
        done.map_err(|errno| failed.unwrap_or(PlanError::Read(errno)))
    }
}

impl Replica {
    /// Returns the names with conflicts.
    ///
    /// # Errors
    /// EIO.
    pub fn conflicts(&self) -> Result<Vec<(DentryKey, Conflict)>, Errno> {
        self.read(|db| Ok(ConflictDirs::all(db)?.list()))
    }

    /// Keeps one side of a conflict, like the removal of the other side's entry.
    ///
    /// # Errors
    /// ENOENT if there is no such conflict; EBUSY if a directory would become its own descendant; EIO.
    pub fn resolve(&self, at: &DentryKey, keep: Side) -> Result<(), Errno> {
        self.apply(|applying| applying.resolve(at, keep))
    }

    /// Keeps both sides of a conflict: this node's becomes a copy next to the other.
    ///
    /// # Errors
    /// ENOENT if there is no such conflict; EBUSY if too many names are taken; EIO.
    pub fn keep_both(&self, at: &DentryKey) -> Result<(), Errno> {
        self.apply(|applying| applying.keep_both(at))
    }

    /// Removes one side from a conflict directory: the other side replaces the directory.
    pub(super) fn remove_side(&self, directory: u64, name: &[u8], is_directory: bool) -> Result<u64, Errno> {
        let own = self.node_name().as_str().as_bytes() == name;
        self.apply(|applying| {
            let (at, child) = applying.work(|db, _| {
                let shown = ConflictDirs::all(db)?;
                let conflict_name = shown.of_directory(directory).map(|(at, _)| at.clone());
                let child = db.link_of(directory, name)?.map(|(child, _)| child);
                let (Some(at), Some(child)) = (conflict_name, child) else { return Err(Errno::NOENT.into()) };
                match (is_directory, db.inode(child)?.is_directory()) {
                    (true, false) => Err(Errno::NOTDIR.into()),
                    (false, true) => Err(Errno::ISDIR.into()),
                    (true, true) if !db.is_empty(child)? => Err(Errno::NOTEMPTY.into()),
                    _ => Ok((at, child)),
                }
            })?;
            applying.resolve(&at, if own { Side::Remote } else { Side::Local })?;
            Ok(child)
        })
    }
}

impl Applying<'_> {
    fn resolve(&mut self, at: &DentryKey, keep: Side) -> Result<(), Errno> {
        self.apply_plan(&mut |trees, fresh| resolve(trees, fresh, at, keep))
    }

    fn keep_both(&mut self, at: &DentryKey) -> Result<(), Errno> {
        let own = self.shared.node.clone();
        self.apply_plan(&mut |trees, fresh| keep_both(trees, fresh, at, &own))
    }

    fn apply_plan(&mut self, plan: &mut Plan<'_>) -> Result<(), Errno> {
        self.plan(&ContentCache::default(), None, plan).map_err(|error| match error {
            PlanError::Read(errno) => errno,
            PlanError::Cannot(_) => Errno::BUSY,
            PlanError::Log(_) => Errno::IO,
        })
    }
}

/// Allocates inode numbers and object ids of a replica.
pub(super) struct ViewIdAllocator<'a, 'b>(&'a TreeView<'b>);

impl IdAllocator for ViewIdAllocator<'_, '_> {
    fn num(&mut self) -> Ino {
        self.0.new_number()
    }

    fn id(&mut self) -> crate::id::ObjectId {
        self.0.db.borrow_mut().new_id()
    }
}

impl Applying<'_> {
    /// Makes a plan and applies it to the replica.
    pub(super) fn plan(
        &mut self,
        content_cache: &ContentCache,
        contents: Option<&ContentStore>,
        plan: &mut Plan<'_>,
    ) -> Result<(), PlanError> {
        self.work(|db, _| {
            db.begin()?;
            db.flush()
        })?;
        let shown = self.work(|db, _| ConflictDirs::all(db))?;
        let view = TreeView::new(self.db, self.shared, content_cache, contents, &shown);
        let changes = plan(&view, &mut ViewIdAllocator(&view))?;
        view.check()?;
        tracing::trace!("planned:{changes}");
        self.write(changes, shown, content_cache)?;
        Ok(())
    }
}

fn store_fingerprint(db: &mut ReplicaDb, mark: LogFingerprint) -> Result<()> {
    db.begin()?;
    let mut put = db.db.prepare_cached("INSERT OR REPLACE INTO meta VALUES ('mark', ?1)")?;
    put.execute([postcard::to_stdvec(&mark)?])?;
    Ok(())
}

impl SyncReplica for SyncAdapter {
    fn now(&self) -> Time {
        self.replica.inner.shared.now()
    }

    fn fingerprint(&self) -> Result<Option<LogFingerprint>, Errno> {
        self.replica.inner.read_in_background(|db| {
            let mut query = db.db.prepare_cached("SELECT value FROM meta WHERE key = 'mark'")?;
            let bytes: Option<Vec<u8>> = query.query_row([], |row| row.get(0)).optional()?;
            Ok(bytes.map(|bytes| postcard::from_bytes(&bytes)).transpose()?)
        })
    }

    fn set_fingerprint(&self, mark: LogFingerprint) -> Result<(), Errno> {
        self.replica.change(|db, _| store_fingerprint(db, mark))
    }

    fn verified_position(&self) -> Result<Option<VerifiedPosition>, Errno> {
        self.replica.inner.read_in_background(|db| log_position::get(db))
    }

    fn set_verified_position(&self, position: &VerifiedPosition) -> Result<(), Errno> {
        self.replica.change(|db, _| log_position::put(db, position))
    }

    fn cursor(&self) -> Result<Seq, Errno> {
        self.replica.cursor()
    }

    fn set_rollback_detected(&self, detected: bool) -> Result<(), Errno> {
        self.replica.set_rollback_detected(detected)
    }

    fn read(&self, read: &mut dyn FnMut(&dyn Trees) -> Result<(), PlanError>) -> Result<(), PlanError> {
        self.replica.inner.foreground.yield_to_foreground(foreground::MAX_YIELD);
        self.with(|applying| {
            let shown = applying.work(|db, _| {
                db.begin()?;
                db.flush()?;
                ConflictDirs::all(db)
            })?;
            let mut view = TreeView::new(
                applying.db,
                applying.shared,
                &self.content_cache,
                Some(&self.contents),
                &shown,
            );
            view.uses_open_snapshots = true;
            read(&view)
        })
    }

    fn change(&self, cursor: Option<Seq>, plan: &mut Plan<'_>) -> Result<(), PlanError> {
        self.with(|applying| {
            applying.plan(&self.content_cache, Some(&self.contents), plan)?;
            if let Some(cursor) = cursor {
                applying.set_cursor(cursor)?;
            }
            Ok(())
        })
    }

    fn change_each(&self, plans: &mut [(LogFingerprint, Box<Plan<'_>>)]) -> Result<(), PlanError> {
        self.replica.inner.foreground.yield_to_foreground(foreground::MAX_YIELD);
        let follow = |plans: &mut [(LogFingerprint, Box<Plan<'_>>)]| {
            self.with(|applying| {
                for (mark, plan) in plans {
                    tracing::trace!("applying commit {}", mark.seq);
                    applying.plan(&self.content_cache, Some(&self.contents), plan)?;
                    applying.set_cursor(mark.seq)?;
                    applying.work(|db, _| store_fingerprint(db, *mark))?;
                }
                Ok(())
            })
        };
        // A failing plan must not prevent those before it.
        follow(plans).or_else(|_| plans.chunks_mut(1).try_for_each(follow))
    }

    fn dirty_set(&self, after: i64, limit: usize) -> Result<(DirtySet, Option<i64>), Errno> {
        self.replica.inner.foreground.yield_to_foreground(foreground::MAX_BURST_DELAY);
        self.replica.inner.read_in_background(|db| query_dirty_set(db, after, limit))
    }

    fn upload(&self, files: Vec<(Ino, Object)>) -> Result<Vec<FileUpload>, SyncError> {
        point(Failpoint::SendBegun)?;
        // The plan that used these entries has ended.
        let mut cache = self.content_cache.lock();
        if cache.len() >= MAX_CACHED_CONTENTS {
            cache.clear();
        }
        drop(cache);
        let until = self.now().0.saturating_add(UPLOAD_TIMEOUT_NANOS);
        let is_late = || self.now().0 > until;
        let mut is_part = false;
        let mut upload = self.contents.upload(&*self.meta);
        let mut read = Vec::new();
        for (num, _) in files {
            if is_late() {
                read.push((num, None));
                continue;
            }
            let mut reading = self.begin_reading(num)?;
            if reading.is_none() && self.fetch_missing(num)? {
                reading = self.begin_reading(num)?;
            }
            let Some(reading) = reading else {
                read.push((num, None));
                continue;
            };
            let previous = (reading.previous.size > 0).then_some(&reading.previous);
            let mut useful = StableReader::new(&reading.file, reading.at_start, &is_late);
            let content = upload.put(&mut useful, reading.at_start.size(), previous).map_err(upload_error)?;
            let is_over = useful.is_aborted || useful.is_late;
            is_part |= useful.is_late;
            let generation = reading.generation;
            let cached = CachedContent { generation, content: content.clone(), open: reading.open };
            let is_whole = self.end_reading(&reading) && !is_over;
            if is_whole {
                self.content_cache.lock().insert(num, cached);
            }
            read.push((num, is_whole.then_some((generation, content))));
        }
        let chunks: HashMap<ChunkId, _> = upload.finish().map_err(upload_error)?.chunks.into_iter().collect();
        point(Failpoint::SendDone)?;
        // Chunks known to the store need not be uploaded again, so an upload that takes longer completes eventually.
        if is_part && self.now().0 < until.saturating_add(UPLOAD_TIMEOUT_NANOS) {
            let chunks = chunks.iter().map(|(id, location)| (*id, location.clone())).collect();
            self.meta.commit(self.replica.node_name(), rand::random(), &[refused(chunks)])?;
        }
        let locations = |content: &Content| -> Vec<_> {
            match &content.layout {
                Layout::Inline(_) => Vec::new(),
                Layout::Direct(segments) => {
                    let ids = segments.iter().filter_map(|segment| match segment {
                        Segment::Chunk { id, .. } => Some(*id),
                        Segment::Hole { .. } => None,
                    });
                    ids.filter_map(|id| chunks.get(&id).map(|location| (id, location.clone()))).collect()
                }
                // The chunks named by its indirect lists are not known here.
                Layout::Indirect(_) => chunks.iter().map(|(id, location)| (*id, location.clone())).collect(),
            }
        };
        let sent =
            |(generation, content): (u64, Content)| (generation, (content.clone(), locations(&content)));
        Ok(read.into_iter().map(|(num, content)| (num, content.map(sent))).collect())
    }

    fn is_open_for_writing(&self, num: Ino) -> Result<bool, Errno> {
        self.replica
            .inner
            .read_in_background(|db| Ok(db.opens.get(&num).is_some_and(|open| open.writers > 0)))
    }

    fn outbox(&self) -> Result<Option<Outbox>, Errno> {
        self.replica.inner.read_in_background(|db| {
            let query = "SELECT value FROM meta WHERE key = 'outbox'";
            let bytes: Option<Vec<u8>> = db.db.query_row(query, [], |row| row.get(0)).optional()?;
            Ok(bytes.map(|bytes| Outbox::decode(&bytes)).transpose()?)
        })
    }

    fn set_outbox(&self, outbox: Option<&Outbox>) -> Result<(), Errno> {
        // If a power failure lost the outbox after the store accepted it, its commits would return as those of another node,
        // and after a user's resolution of a conflict meanwhile.
        let is_shown = self.replica.change(|db, _| {
            db.begin()?;
            match outbox {
                Some(outbox) => db
                    .db
                    .execute("INSERT OR REPLACE INTO meta VALUES ('outbox', ?1)", params![outbox.encode()])?,
                None => db.db.execute("DELETE FROM meta WHERE key = 'outbox'", [])?,
            };
            Ok(outbox.is_some() && !db.conflicts.is_empty())
        })?;
        match is_shown {
            true => self.replica.sync(),
            false => self.replica.commit(),
        }
    }

    fn conflicts(&self) -> Result<Vec<DentryKey>, Errno> {
        self.replica.inner.read_in_background(|db| Ok(ConflictDirs::all(db)?.keys()))
    }
}

fn upload_error(error: ContentError) -> SyncError {
    SyncError::Store(match error {
        error if error.is_unreachable() => StoreError::Unreachable(error.to_string()),
        ContentError::Denied(_) | ContentError::Store(StoreError::Denied(_)) => {
            StoreError::Denied(error.to_string())
        }
        error => StoreError::Damaged(error.to_string()),
    })
}

const DIRTY_SET_QUERY: &str = "SELECT n, parent, name FROM base_link WHERE n > ?1
    UNION ALL SELECT n, num, NULL FROM base_object WHERE n > ?1 AND object IS NOT NULL
    ORDER BY 1 LIMIT ?2";

/// Returns changed names and objects in the order of their changes.
fn query_dirty_set(db: &mut ReplicaDb, after: i64, limit: usize) -> Result<(DirtySet, Option<i64>)> {
    db.flush()?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut query = db.db.prepare_cached(DIRTY_SET_QUERY)?;
    let mut rows = query.query(params![after, limit])?;
    let (mut todo, mut last, mut count) = (DirtySet::default(), after, 0);
    while let Some(row) = rows.next()? {
        (last, count) = (row.get(0)?, count + 1);
        let num = number(row.get(1)?);
        match row.get::<_, Option<Vec<u8>>>(2)? {
            Some(name) => todo.names.push(DentryKey { parent: num, name }),
            None => todo.objects.push(num),
        }
    }
    Ok((todo, (count == limit).then_some(last)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::Options;

    /// The query must not scan the rows of a million new files for each batch, since it returns none of them.
    #[test]
    fn local_changes_are_found_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let replica = Replica::open(dir.path(), Options::new("v", "n".parse().unwrap())).unwrap();
        let db = replica.inner.db.lock();
        let mut plan = db.db.prepare(&format!("EXPLAIN QUERY PLAN {DIRTY_SET_QUERY}")).unwrap();
        let steps = plan.query_map([0, 1], |row| row.get(3)).unwrap();
        let steps = steps.collect::<rusqlite::Result<Vec<String>>>().unwrap();
        let uses = |index: &str| steps.iter().any(|step| step.contains(index));
        assert!(uses("base_link_order (n>?)") && uses("base_object_changed (n>?)"), "{steps:?}");
    }
}
