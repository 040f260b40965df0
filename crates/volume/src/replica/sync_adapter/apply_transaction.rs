//! Applies changes of synchronisation to the replica: objects, names and their base versions.
//!
//! Each application is one transaction, committed or rolled back as a whole; after the commit, the caches in front of the
//! replica are invalidated.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rusqlite::{Connection, params};
use rustix::io::Errno;

use crate::failpoint::{Failpoint, point};
use crate::id::{ObjectId, Seq};
use crate::object::{Content, Object, VersionedObject};
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::{CacheState, Dirty, Inode};
use crate::replica::error::Result;
use crate::replica::{Replica, Shared};

/// The local state of an object, relative to the base version.
#[derive(Debug, Clone, Copy)]
pub enum LocalObject<'a> {
    /// Equal to the base: the object has no local change left.
    Agreed,
    /// Different from the base. The content of `object` is ignored: `keep_content` says whether the file keeps the data of its
    /// backing file, possibly a local change, or has the base content.
    Different {
        /// The local attributes.
        object: &'a Object,
        /// The data in the backing file is kept as a local change.
        keep_content: bool,
    },
}

/// An invalidation for the caches in front of the replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Invalidation {
    Object(u64),
    Content(u64),
    Link { parent: u64, name: Vec<u8>, was_directory: bool },
}

/// A transaction of synchronisation on the replica, which is committed or rolled back as a whole.
pub struct Applying<'a> {
    pub(crate) db: &'a mut ReplicaDb,
    pub(crate) shared: &'a Shared,
    pub(crate) invalidations: Vec<Invalidation>,
    failed: bool,
}

impl Replica {
    /// Changes the replica in one transaction, which is rolled back if the closure fails.
    ///
    /// # Errors
    /// The errors of the closure; ENOSPC, EIO.
    pub fn apply<T>(&self, work: impl FnOnce(&mut Applying<'_>) -> Result<T, Errno>) -> Result<T, Errno> {
        let shared = &self.inner.shared;
        let done = {
            let mut db = self.inner.db.lock();
            // Commits earlier changes of users, so that a rollback does not include them.
            shared.commit(&mut db).map_err(|fail| fail.errno)?;
            point(Failpoint::ReplicaApply)?;
            let mut applying = Applying { db: &mut db, shared, invalidations: Vec::new(), failed: false };
            let done = work(&mut applying);
            let Applying { invalidations: stale, failed, .. } = applying;
            let done = match done {
                Ok(_) if failed => Err(Errno::IO),
                done => done,
            };
            let committed = match done {
                Ok(done) => shared.commit(&mut db).map_err(|fail| fail.errno).map(|()| done),
                Err(errno) => Err(errno),
            };
            self.inner.foreground.sample();
            match committed {
                Ok(done) => {
                    // Sent under the lock: an open from now on finds the invalidation in progress.
                    shared.invalidate_kernel(stale);
                    done
                }
                Err(errno) => {
                    db.roll_back();
                    return Err(errno);
                }
            }
        };
        // Removed objects may have left backing files to delete.
        shared.durability.notify_changed();
        shared.cache_changed.notify();
        Ok(done)
    }
}

impl Shared {
    fn invalidate_kernel(&self, all: Vec<Invalidation>) {
        self.applied.fetch_add(1, Ordering::SeqCst);
        let Some(caches) = self.kernel_cache.get() else { return };
        for stale in all {
            match stale {
                Invalidation::Object(num) => caches.object_changed(num),
                Invalidation::Content(num) => caches.content_changed(num),
                Invalidation::Link { parent, name, was_directory } => {
                    caches.link_changed(parent, &name, was_directory);
                }
            }
        }
    }
}

impl Applying<'_> {
    pub(crate) fn work<T>(
        &mut self,
        work: impl FnOnce(&mut ReplicaDb, &Shared) -> Result<T>,
    ) -> Result<T, Errno> {
        work(self.db, self.shared).map_err(|fail| {
            self.failed |= fail.database;
            fail.errno
        })
    }

    /// Returns the database, for tables that belong to synchronisation. Cached inodes are written to it first.
    ///
    /// # Errors
    /// EIO.
    #[allow(dead_code)]
    pub(crate) fn database(&mut self) -> Result<&Connection, Errno> {
        self.work(|db, _| {
            db.begin()?;
            db.flush()
        })?;
        Ok(&self.db.db)
    }

    /// Returns the inode of a number, linked or not.
    ///
    /// # Errors
    /// EIO.
    pub fn inode(&mut self, num: u64) -> Result<Option<Inode>, Errno> {
        self.work(|db, _| db.find(num))
    }

    /// Returns the inode of an object id.
    ///
    /// # Errors
    /// EIO.
    pub fn find(&mut self, id: ObjectId) -> Result<Option<Inode>, Errno> {
        self.work(|db, _| db.find_id(id))
    }

    /// Returns the local state of an object, with the commits that last set the fields not changed here.
    ///
    /// # Errors
    /// EIO.
    pub fn local(&mut self, inode: &Inode) -> Result<VersionedObject, Errno> {
        self.work(|db, _| db.stored(inode))
    }

    /// Returns the base version of an object; `None` if the store does not have it.
    ///
    /// # Errors
    /// EIO.
    pub fn base(&mut self, inode: &Inode) -> Result<Option<VersionedObject>, Errno> {
        self.work(|db, _| match db.base(inode.ino)? {
            Some(base) => Ok(base),
            None if inode.dirty.contains(Dirty::NEW) => Ok(None),
            None => db.stored(inode).map(Some),
        })
    }

    /// Returns the number of opens of a file for writing.
    pub fn writers(&self, num: u64) -> u32 {
        self.db.opens.get(&num).map_or(0, |open| open.writers)
    }

    /// Returns the inode number that a name refers to locally.
    ///
    /// # Errors
    /// EIO.
    pub fn link(&mut self, parent: u64, name: &[u8]) -> Result<Option<u64>, Errno> {
        self.work(|db, _| Ok(db.link_of(parent, name)?.map(|(child, _)| child)))
    }

    /// Returns the inode number that a name refers to in the base, and the commit that set it.
    ///
    /// # Errors
    /// EIO.
    pub fn base_link(&mut self, parent: u64, name: &[u8]) -> Result<Option<(u64, Seq)>, Errno> {
        self.work(|db, _| {
            if db.link_differs(parent, name)? {
                return db.base_link(parent, name);
            }
            db.link_of(parent, name)
        })
    }

    /// Returns the local names of an object, as parent directory and name.
    ///
    /// # Errors
    /// EIO.
    pub fn names(&mut self, num: u64) -> Result<Vec<(u64, Vec<u8>)>, Errno> {
        self.work(|db, _| {
            let mut query = db.db.prepare_cached("SELECT parent, name FROM link WHERE child = ?1")?;
            let rows =
                query.query_map([num as i64], |row| Ok((row.get::<_, i64>(0)? as u64, row.get(1)?)))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Reports whether an object is `above` itself or a descendant of it.
    ///
    /// # Errors
    /// EIO.
    pub fn is_below(&mut self, num: u64, above: u64) -> Result<bool, Errno> {
        self.work(|db, _| db.is_below(num, above))
    }

    /// Sets the base version of an object and its local state, and returns its inode number. An unknown object is created,
    /// unlinked at first. With `None` for `agreed`, the store does not have the object, or has it no more.
    ///
    /// # Errors
    /// ENOENT if neither side has it; EBUSY if its content would be replaced while it is being written; EIO.
    pub fn set_object(
        &mut self,
        id: ObjectId,
        agreed: Option<&VersionedObject>,
        local: LocalObject<'_>,
    ) -> Result<u64, Errno> {
        let mut stale = Vec::new();
        let num = self.work(|db, shared| db.set_object(id, agreed, local, shared, &mut stale))?;
        self.invalidations.append(&mut stale);
        Ok(num)
    }

    /// Sets the base version of a name and what it refers to locally.
    ///
    /// # Errors
    /// ENOENT if the directory or the object is unknown; EINVAL if a directory would become its own descendant; EIO.
    pub fn set_link(
        &mut self,
        parent: u64,
        name: &[u8],
        agreed: Option<(u64, Seq)>,
        local: Option<u64>,
    ) -> Result<(), Errno> {
        let before = self.link(parent, name)?;
        let changed = self.work(|db, shared| db.set_link(parent, name, agreed, local, shared))?;
        if changed {
            let was_directory = match before {
                Some(child) => self.inode(child)?.is_none_or(|inode| inode.is_directory()),
                None => false,
            };
            self.invalidations.push(Invalidation::Link { parent, name: name.to_vec(), was_directory });
            // Their link counts changed.
            self.invalidations.extend(before.into_iter().chain(local).map(Invalidation::Object));
        }
        Ok(())
    }

    /// Sets the last commit of the store that is applied.
    ///
    /// # Errors
    /// EIO.
    pub(crate) fn set_cursor(&mut self, cursor: Seq) -> Result<(), Errno> {
        self.work(|db, _| db.set_cursor(cursor))
    }
}

impl ReplicaDb {
    fn set_object(
        &mut self,
        id: ObjectId,
        agreed: Option<&VersionedObject>,
        local: LocalObject<'_>,
        shared: &Shared,
        stale: &mut Vec<Invalidation>,
    ) -> Result<u64> {
        self.begin()?;
        let object = match (local, agreed) {
            (LocalObject::Different { object, .. }, _) => object,
            (LocalObject::Agreed, Some(agreed)) => &agreed.object,
            (LocalObject::Agreed, None) => return Err(Errno::NOENT.into()),
        };
        let mut inode = match self.find_id(id)? {
            Some(inode) => inode,
            None => {
                let num = self.new_number()?;
                let inode = unnamed(num, object);
                // Inserts its row, for foreign references.
                self.save(inode.clone());
                self.flush()?;
                inode
            }
        };
        let num = inode.ino;
        let keeps = matches!(local, LocalObject::Different { keep_content: true, .. });
        let content = agreed.map(|agreed| &agreed.object.content);
        if inode.is_regular()
            && let Some(content) = content
        {
            if !keeps && !self.can_keep_present(&inode, content)? {
                self.replace_content(&mut inode, content, shared)?;
                stale.push(Invalidation::Content(num));
            }
            self.set_content(num, content)?;
        }
        inode.created_seq = agreed.map_or(Seq(0), |agreed| agreed.created);
        inode.mode = object.mode;
        inode.owner = object.owner;
        inode.group = object.group;
        if !keeps {
            inode.modified = object.modified;
        }
        inode.changed = shared.now();
        self.set_xattrs(&mut inode, object)?;
        inode.generation += 1;
        match agreed {
            Some(agreed) => self.set_seqs(num, agreed)?,
            None => {
                self.db.prepare_cached("DELETE FROM field_seq WHERE num = ?1")?.execute([num as i64])?;
            }
        }
        inode.dirty = match local {
            LocalObject::Agreed => Dirty::empty(),
            LocalObject::Different { object, keep_content } => differences(agreed, object, keep_content),
        };
        if inode.dirty.is_empty() {
            inode.maybe_dirty = false;
            self.clear_base(num)?;
        } else {
            inode.maybe_dirty |= keeps;
            self.set_base(num, agreed)?;
        }
        self.save(inode);
        stale.push(Invalidation::Object(num));
        Ok(num)
    }

    /// Reports whether the cached data of a file belongs to this content, and further downloads do not overwrite it. With a
    /// different chunking, chunks would overlap cached ranges, which would be served before the chunks are complete.
    pub(crate) fn can_keep_present(&self, inode: &Inode, content: &Content) -> Result<bool> {
        let current = self.content(inode.ino)?;
        let is_untouched = match inode.state {
            CacheState::Complete => true,
            CacheState::Partial => current.layout == content.layout,
            CacheState::Absent => false,
        };
        Ok(is_untouched && current.is_same(content) && !inode.maybe_dirty)
    }

    /// Replaces the content of a file by one that is only in the store. Existing opens keep the old data.
    pub(crate) fn replace_content(
        &mut self,
        inode: &mut Inode,
        content: &Content,
        shared: &Shared,
    ) -> Result<()> {
        let num = inode.ino;
        // Writers of a file that was unlinked here keep the old file.
        let is_written = self.opens.get(&num).is_some_and(|open| open.writers > 0);
        if is_written && !self.unlinked_open.contains(&num) {
            return Err(Errno::BUSY.into());
        }
        // Readers keep the old backing file, which is unlinked once this change is durable: see `finish_reaping`.
        self.last_created = None;
        // Also for a file without cached data: its backing file may hold a partial download of the old version.
        self.schedule_unlink(num)?;
        if inode.state == CacheState::Complete {
            let before = self.basis_of(inode, shared)?;
            self.queue_refetch(num, before)?;
        }
        self.opens.remove(&num);
        self.clear_present(num)?;
        inode.size = content.size;
        inode.maybe_dirty = false;
        inode.state = CacheState::Absent;
        Ok(())
    }

    pub(crate) fn set_xattrs(&mut self, inode: &mut Inode, object: &Object) -> Result<()> {
        if self.xattrs(inode)? == object.xattrs {
            return Ok(());
        }
        self.db.prepare_cached("DELETE FROM xattr WHERE num = ?1")?.execute([inode.ino as i64])?;
        let mut insert = self.db.prepare_cached("INSERT INTO xattr VALUES (?1, ?2, ?3)")?;
        for (name, value) in &object.xattrs {
            insert.execute(params![inode.ino as i64, name, value])?;
        }
        inode.xattrs = !object.xattrs.is_empty();
        if inode.ino == crate::replica::ROOT {
            self.usage.set_limits(object.xattrs.get(crate::quota::ATTRIBUTE).map(Vec::as_slice));
        }
        Ok(())
    }

    /// Reports whether a name differs from its base version.
    pub(crate) fn link_differs(&self, parent: u64, name: &[u8]) -> Result<bool> {
        let mut query = self.db.prepare_cached("SELECT 1 FROM base_link WHERE parent = ?1 AND name = ?2")?;
        Ok(query.exists(params![parent as i64, name])?)
    }

    /// Sets the base and local target of a name. Returns whether the local target changed.
    fn set_link(
        &mut self,
        parent: u64,
        name: &[u8],
        agreed: Option<(u64, Seq)>,
        local: Option<u64>,
        shared: &Shared,
    ) -> Result<bool> {
        self.begin()?;
        let before = self.link_of(parent, name)?.map(|(child, _)| child);
        let before_base = self.base_link(parent, name)?.map(|(child, _)| child);
        if before != local {
            let now = shared.now();
            // A later local change may depend on the object, so it is linked before the other one is unlinked.
            if let Some(child) = local {
                let mut inode = self.find(child)?.ok_or(Errno::NOENT)?;
                if inode.is_directory() && self.is_below(parent, child)? {
                    return Err(Errno::INVAL.into());
                }
                inode.links += 1;
                inode.changed = now;
                self.unmark_unlinked(child)?;
                self.save(inode);
            }
            if let Some(child) = before {
                let mut directory = self.find(parent)?.ok_or(Errno::NOENT)?;
                let mut inode = self.find(child)?.ok_or(Errno::IO)?;
                self.remove_dentry(&mut directory, name, &inode)?;
                self.save(directory);
                self.drop_link_count(&mut inode, now, shared)?;
            }
            if let Some(child) = local {
                let mut directory = self.find(parent)?.ok_or(Errno::NOENT)?;
                let inode = self.find(child)?.ok_or(Errno::IO)?;
                let seq = agreed.filter(|(agreed, _)| *agreed == child).map_or(Seq(0), |(_, seq)| seq);
                self.add_link(&mut directory, name, &inode, now, Some(seq))?;
                self.save(directory);
            }
        }
        match (agreed, local) {
            (Some((child, seq)), Some(local)) if child == local => {
                self.clear_base_link(parent, name)?;
                self.set_link_seq(parent, name, seq)?;
            }
            (None, None) => self.clear_base_link(parent, name)?,
            _ => {
                self.set_base_link(parent, name, agreed)?;
                self.set_link_seq(parent, name, Seq(0))?;
            }
        }
        for child in before.into_iter().chain(before_base) {
            self.drop_unreferenced(child)?;
        }
        Ok(before != local)
    }

    /// Keeps the row of an object that the store has and that is removed here.
    pub(crate) fn keep_deleted(&mut self, num: u64, stored: &VersionedObject) -> Result<()> {
        self.begin()?;
        let mut inode = unnamed(num, &stored.object);
        inode.state = CacheState::Absent;
        inode.created_seq = stored.created;
        self.save(inode);
        self.flush()?;
        self.set_seqs(num, stored)
    }
}

pub(crate) fn unnamed(num: u64, object: &Object) -> Inode {
    Inode {
        ino: num,
        id: object.id,
        kind: object.kind,
        mode: object.mode,
        owner: object.owner,
        group: object.group,
        modified: object.modified,
        changed: object.modified,
        target: Arc::from(&object.target[..]),
        size: object.content.size.max(object.target.len() as u64),
        state: if object.kind == crate::object::Kind::Regular {
            CacheState::Absent
        } else {
            CacheState::Complete
        },
        maybe_dirty: false,
        links: 0,
        subdirs: 0,
        created_seq: Seq(0),
        dirty: Dirty::empty(),
        generation: 0,
        pinned: false,
        xattrs: false,
        last_opened: object.modified,
    }
}

pub(crate) fn differences(agreed: Option<&VersionedObject>, local: &Object, keeps_content: bool) -> Dirty {
    let Some(VersionedObject { object: agreed, .. }) = agreed else { return Dirty::NEW };
    let mut dirty = Dirty::empty();
    dirty.set(Dirty::CONTENT, keeps_content);
    dirty.set(Dirty::MODE, agreed.mode != local.mode);
    dirty.set(Dirty::OWNER, agreed.owner != local.owner);
    dirty.set(Dirty::GROUP, agreed.group != local.group);
    dirty.set(Dirty::MODIFIED, agreed.modified != local.modified);
    dirty.set(Dirty::XATTR, agreed.xattrs != local.xattrs);
    dirty
}
