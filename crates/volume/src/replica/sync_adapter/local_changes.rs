//! Local changes that are not in the store yet.
//!
//! The database keeps the base version of each changed object and name, in the order of the first change. Synchronisation
//! reads them from here, pushes them, and marks them as committed.

use rusqlite::params;
use rustix::io::Errno;

use crate::id::{ObjectId, Seq};
use crate::object::{Object, VersionedObject};
use crate::replica::Replica;
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::{Dirty, number};
use crate::replica::error::Result;
use crate::replica::sync_adapter::apply_transaction::Applying;

/// An object with local changes.
#[derive(Debug, Clone)]
pub struct PendingObject {
    /// The inode number.
    pub num: u64,
    /// The generation to pass to [`mark_committed`](Replica::mark_committed).
    pub generation: u64,
    /// The changed fields; content is only possibly changed.
    pub dirty: Dirty,
    /// The base version; `None` if the object is new.
    pub base: Option<VersionedObject>,
    /// The local state. Its content is the last known one, regardless of the backing file.
    pub local: Object,
    /// The backing file may differ from `local.content`.
    pub maybe_dirty: bool,
    /// The number of opens for writing: the content is not final before they are released.
    pub writers: u32,
}

/// A name with a local change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingLink {
    /// The directory.
    pub parent: u64,
    /// The id of the directory.
    pub parent_id: ObjectId,
    /// The name itself.
    pub name: Vec<u8>,
    /// The object that the name refers to in the base, and the commit that set it.
    pub base: Option<(u64, ObjectId, Seq)>,
    /// The object that the name refers to now.
    pub local: Option<(u64, ObjectId)>,
}

/// A local change.
#[derive(Debug, Clone)]
pub enum LocalChange {
    /// A changed object.
    Object(Box<PendingObject>),
    /// A changed name.
    Link(PendingLink),
}

impl Replica {
    /// Returns at most `limit` local changes, in the order of their first occurrence. Unlinked objects are excluded.
    ///
    /// # Errors
    /// EIO.
    pub fn pending(&self, limit: usize) -> Result<Vec<LocalChange>, Errno> {
        self.read(|db| db.pending(limit))
    }

    /// Returns the number of local changes.
    ///
    /// # Errors
    /// EIO.
    pub fn pending_count(&self) -> Result<u64, Errno> {
        self.read(|db| {
            let mut query = db.db.prepare_cached(
                "SELECT (SELECT count(*) FROM base_object) + (SELECT count(*) FROM base_link)",
            )?;
            Ok(number(query.query_row([], |row| row.get(0))?))
        })
    }

    /// Reports whether a name is unchanged from its base.
    pub(crate) fn is_agreed_name(&self, parent: u64, name: &[u8]) -> Result<bool, Errno> {
        self.read(|db| {
            let mut query =
                db.db.prepare_cached("SELECT 1 FROM base_link WHERE parent = ?1 AND name = ?2")?;
            Ok(!query.exists(params![parent as i64, name])?)
        })
    }

    /// Returns at most `limit` directories in which an object has names that the store does not have.
    pub(crate) fn new_names(&self, num: u64, limit: u32) -> Result<Vec<u64>, Errno> {
        self.read(|db| {
            let mut query = db.db.prepare_cached(
                "SELECT DISTINCT parent FROM link WHERE child = ?1 AND set_seq = 0 LIMIT ?2",
            )?;
            let parents = query.query_map(params![num as i64, limit], |row| Ok(number(row.get(0)?)))?;
            Ok(parents.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Returns the ids of the directories in which an object has a name.
    pub(crate) fn parents(&self, num: u64) -> Result<Vec<ObjectId>, Errno> {
        self.read(|db| {
            let mut query = db.db.prepare_cached("SELECT DISTINCT parent FROM link WHERE child = ?1")?;
            let parents = query.query_map([num as i64], |row| Ok(number(row.get(0)?)))?;
            let parents = parents.collect::<rusqlite::Result<Vec<u64>>>()?;
            drop(query);
            let mut ids = Vec::with_capacity(parents.len());
            for parent in parents {
                ids.extend(db.find(parent)?.map(|inode| inode.id));
            }
            Ok(ids)
        })
    }

    /// Reports whether the content of a file is unchanged from its base. True for a removed file.
    pub(crate) fn is_agreed_file(&self, num: u64) -> Result<bool, Errno> {
        let changed = Dirty::CONTENT | Dirty::NEW;
        self.read(|db| Ok(db.find(num)?.is_none_or(|inode| !inode.dirty.intersects(changed))))
    }

    /// Records that the store has an object as it was at a generation. If the object did not change since, it is clean.
    ///
    /// # Errors
    /// EIO.
    pub fn mark_committed(&self, num: u64, generation: u64, stored: &VersionedObject) -> Result<(), Errno> {
        self.apply(|applying| applying.rebase_object(num, generation, stored))
    }

    /// Records that the store has a name as it was here: referring to an object since a commit, or absent.
    ///
    /// # Errors
    /// EIO.
    pub fn mark_link_committed(
        &self,
        parent: u64,
        name: &[u8],
        now: Option<(u64, Seq)>,
    ) -> Result<(), Errno> {
        self.apply(|applying| applying.rebase_link(parent, name, now))
    }
}

impl ReplicaDb {
    fn pending(&mut self, limit: usize) -> Result<Vec<LocalChange>> {
        self.flush()?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut all: Vec<(i64, LocalChange)> = Vec::new();
        for (num, base, n) in self.pending_objects(limit)? {
            let Some(inode) = self.find(num)?.filter(|inode| inode.links > 0) else { continue };
            let base = base.map(|bytes| postcard::from_bytes(&bytes)).transpose()?;
            let local = self.object(&inode)?;
            let writers = self.opens.get(&num).map_or(0, |open| open.writers);
            let (generation, dirty, maybe_dirty) = (inode.generation, inode.dirty, inode.maybe_dirty);
            let object = PendingObject { num, generation, dirty, base, local, maybe_dirty, writers };
            all.push((n, LocalChange::Object(Box::new(object))));
        }
        for (parent, name, base, n) in self.pending_links(limit)? {
            let Some(directory) = self.find(parent)? else { continue };
            let base = match base {
                Some((num, seq)) => self.find(num)?.map(|inode| (num, inode.id, seq)),
                None => None,
            };
            let local = match self.link_of(parent, &name)? {
                Some((num, _)) => self.find(num)?.map(|inode| (num, inode.id)),
                None => None,
            };
            let link = PendingLink { parent, parent_id: directory.id, name, base, local };
            all.push((n, LocalChange::Link(link)));
        }
        all.sort_by_key(|(n, _)| *n);
        all.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(all.into_iter().map(|(_, pending)| pending).collect())
    }

    #[expect(clippy::type_complexity)]
    fn pending_objects(&self, limit: i64) -> Result<Vec<(u64, Option<Vec<u8>>, i64)>> {
        // Unlinked objects are skipped until they are linked again or removed.
        let mut query = self.db.prepare_cached(
            "SELECT base.num, base.object, base.n FROM base_object base JOIN object ON object.num = base.num
             WHERE object.nlink > 0 ORDER BY base.n LIMIT ?1",
        )?;
        let rows = query.query_map([limit], |row| Ok((number(row.get(0)?), row.get(1)?, row.get(2)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    #[expect(clippy::type_complexity)]
    fn pending_links(&self, limit: i64) -> Result<Vec<(u64, Vec<u8>, Option<(u64, Seq)>, i64)>> {
        let mut query = self
            .db
            .prepare_cached("SELECT parent, name, child, set_seq, n FROM base_link ORDER BY n LIMIT ?1")?;
        let rows = query.query_map([limit], |row| {
            let child: Option<i64> = row.get(2)?;
            let seq = Seq(number(row.get(3)?));
            Ok((number(row.get(0)?), row.get(1)?, child.map(|child| (number(child), seq)), row.get(4)?))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Sets the base version of an object with local changes.
    pub(crate) fn set_base(&mut self, num: u64, base: Option<&VersionedObject>) -> Result<()> {
        self.begin()?;
        let bytes = base.map(postcard::to_stdvec).transpose()?;
        let n = self.next_dirty_order();
        self.db
            .prepare_cached(
                "INSERT INTO base_object (num, object, n) VALUES (?1, ?2, ?3)
                 ON CONFLICT (num) DO UPDATE SET object = ?2",
            )?
            .execute(params![num as i64, bytes, n])?;
        Ok(())
    }

    pub(crate) fn clear_base(&mut self, num: u64) -> Result<()> {
        self.begin()?;
        self.db.prepare_cached("DELETE FROM base_object WHERE num = ?1")?.execute([num as i64])?;
        Ok(())
    }

    /// Sets the base version of a name with local changes.
    pub(crate) fn set_base_link(&mut self, parent: u64, name: &[u8], base: Option<(u64, Seq)>) -> Result<()> {
        self.begin()?;
        let n = self.next_dirty_order();
        self.db
            .prepare_cached(
                "INSERT INTO base_link (parent, name, child, set_seq, n) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (parent, name) DO UPDATE SET child = ?3, set_seq = ?4",
            )?
            .execute(params![
                parent as i64,
                name,
                base.map(|(child, _)| child as i64),
                base.map_or(0, |(_, seq)| seq.0 as i64),
                n
            ])?;
        Ok(())
    }

    pub(crate) fn clear_base_link(&mut self, parent: u64, name: &[u8]) -> Result<()> {
        self.begin()?;
        self.db
            .prepare_cached("DELETE FROM base_link WHERE parent = ?1 AND name = ?2")?
            .execute(params![parent as i64, name])?;
        Ok(())
    }

    /// Deletes an object that only a base version referenced.
    pub(crate) fn drop_unreferenced(&mut self, num: u64) -> Result<()> {
        let Some(inode) = self.find(num)? else { return Ok(()) };
        let is_used = inode.links > 0 || self.unlinked_open.contains(&num) || num == crate::replica::ROOT;
        if !is_used && !self.is_in_base(num)? {
            self.erase(num)?;
        }
        Ok(())
    }
}

impl Applying<'_> {
    pub(crate) fn rebase_object(
        &mut self,
        num: u64,
        generation: u64,
        stored: &VersionedObject,
    ) -> Result<(), Errno> {
        self.work(|db, _| {
            let Some(mut inode) = db.find(num)? else {
                return db.keep_deleted(num, stored);
            };
            db.begin()?;
            inode.created_seq = stored.created;
            let writers = db.opens.get(&num).map_or(0, |open| open.writers);
            let is_settled = inode.generation == generation && writers == 0;
            if is_settled {
                inode.dirty = Dirty::empty();
                inode.maybe_dirty = false;
                db.clear_base(num)?;
            } else {
                inode.dirty -= Dirty::NEW;
                db.set_base(num, Some(stored))?;
                if inode.dirty.is_empty() {
                    // A new object that changed since the push: any field may differ.
                    inode.dirty = Dirty::all() - Dirty::NEW;
                }
            }
            if inode.is_regular() {
                db.set_content(num, &stored.object.content)?;
            }
            db.set_seqs(num, stored)?;
            db.save(inode);
            Ok(())
        })
    }

    pub(crate) fn rebase_link(
        &mut self,
        parent: u64,
        name: &[u8],
        now: Option<(u64, Seq)>,
    ) -> Result<(), Errno> {
        self.work(|db, _| {
            db.begin()?;
            let before = db.base_link(parent, name)?;
            let local = db.link_of(parent, name)?;
            match (local, now) {
                (Some((child, _)), Some((pushed, seq))) if child == pushed => {
                    db.clear_base_link(parent, name)?;
                    db.set_link_seq(parent, name, seq)?;
                }
                (None, None) => db.clear_base_link(parent, name)?,
                _ => db.set_base_link(parent, name, now)?,
            }
            match before {
                Some((child, _)) => db.drop_unreferenced(child),
                None => Ok(()),
            }
        })
    }
}

impl ReplicaDb {
    /// Returns the base version of a name that has local changes.
    pub(crate) fn base_link(&self, parent: u64, name: &[u8]) -> Result<Option<(u64, Seq)>> {
        use rusqlite::OptionalExtension as _;
        let mut query =
            self.db.prepare_cached("SELECT child, set_seq FROM base_link WHERE parent = ?1 AND name = ?2")?;
        let row = query.query_row(params![parent as i64, name], |row| {
            let child: Option<i64> = row.get(0)?;
            Ok(child.map(|child| (number(child), row.get(1).map(number).map(Seq))))
        });
        match row.optional()?.flatten() {
            Some((child, seq)) => Ok(Some((child, seq?))),
            None => Ok(None),
        }
    }

    pub(crate) fn set_link_seq(&mut self, parent: u64, name: &[u8], seq: Seq) -> Result<()> {
        self.db
            .prepare_cached("UPDATE link SET set_seq = ?3 WHERE parent = ?1 AND name = ?2")?
            .execute(params![parent as i64, name, seq.0 as i64])?;
        Ok(())
    }
}
