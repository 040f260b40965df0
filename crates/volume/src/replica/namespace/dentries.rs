//! Dentry operations: lookup, create, link, unlink, rename and directory listing.
//!
//! Each operation is one atomic change of the database. The first change of a name or object since the last synchronisation
//! records its base version, and a change back to the base removes the record.

use std::sync::Arc;

use rusqlite::{OptionalExtension as _, params};
use rustix::io::Errno;

use crate::failpoint::{Failpoint, point};
use crate::id::{OwnerId, Seq};
use crate::merge::CycleDetector;
use crate::object::{Kind, Time};
use crate::quota::Usage;
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::{CacheState, Dirty, Inode, ROOT, number};
use crate::replica::error::{OpError, Result};
use crate::replica::{Replica, Shared};

/// Attributes of an object to create.
#[derive(Debug, Clone, Copy)]
pub struct NewObject<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u16,
    /// The owning user.
    pub owner: OwnerId,
    /// The owning group, unless the directory is set-group-ID and passes on its own.
    pub group: OwnerId,
    /// The target of a symlink.
    pub target: &'a [u8],
}

/// Rename mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rename {
    /// Replace an existing object at the new name.
    Replace,
    /// Fail if the new name exists.
    NoReplace,
    /// Swap the two names.
    Exchange,
}

/// A directory entry.
#[derive(Debug, Clone)]
pub struct DirEntry {
    /// The name itself.
    pub name: Vec<u8>,
    /// The inode that the name refers to.
    pub inode: Inode,
}

/// Maximum length of a name.
const MAX_NAME_BYTES: usize = 255;
/// Maximum length of a symlink target.
const MAX_SYMLINK_TARGET_BYTES: usize = 4095;
const SETGID: u16 = 0o2000;

impl Replica {
    /// Looks a name up in a directory.
    ///
    /// # Errors
    /// ENOENT, ENAMETOOLONG, ESTALE; EIO if the database is damaged.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Inode, Errno> {
        if name.len() > MAX_NAME_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        self.read(|db| {
            let (child, _) = db.link_of(parent, name)?.ok_or(OpError::new(Errno::NOENT))?;
            let mut inode = db.inode(child)?;
            db.overlay(&mut inode)?;
            Ok(inode)
        })
    }

    /// Returns the inode of a number.
    ///
    /// # Errors
    /// ESTALE, EIO.
    pub fn get(&self, num: u64) -> Result<Inode, Errno> {
        self.read(|db| {
            let mut inode = db.inode(num)?;
            db.overlay(&mut inode)?;
            Ok(inode)
        })
    }

    /// Returns the parent of a directory; the root is its own parent.
    ///
    /// # Errors
    /// ESTALE, EIO; ENOENT if the directory is unlinked.
    pub fn parent(&self, num: u64) -> Result<Inode, Errno> {
        self.read(|db| {
            let parent = db.parent_of(num)?.ok_or(OpError::new(Errno::NOENT))?;
            db.inode(parent)
        })
    }

    /// Lists at most `limit` entries of a directory in name order, starting behind the name `after`.
    ///
    /// # Errors
    /// ESTALE, EIO.
    pub fn list(&self, parent: u64, after: &[u8], limit: usize) -> Result<Vec<DirEntry>, Errno> {
        self.read(|db| db.list(parent, after, limit))
    }

    /// Creates an object with a name.
    ///
    /// # Errors
    /// EEXIST, ENOENT, ENOTDIR, ESTALE, ENAMETOOLONG, ENOSPC, EIO; EDQUOT if a quota limit would be exceeded.
    pub fn make(&self, parent: u64, name: &[u8], new: NewObject<'_>) -> Result<Inode, Errno> {
        check_name(name)?;
        self.inner.reap_if_low_on_space();
        self.change(|db, shared| {
            let mut directory = db.directory(parent)?;
            db.ensure_not_conflict_dir(parent, Errno::PERM)?;
            if db.link_of(parent, name)?.is_some() {
                return Err(OpError::new(Errno::EXIST));
            }
            let now = shared.now();
            let mut inode = db.new_inode(&directory, new, now, shared)?;
            inode.links = 1;
            db.begin()?;
            db.add_link(&mut directory, name, &inode, now, None)?;
            db.save(inode.clone());
            db.save(directory);
            db.note_result(inode.ino);
            Ok(inode)
        })
    }

    /// Creates an unlinked regular file (`O_TMPFILE`). The caller holds one reference to it.
    ///
    /// # Errors
    /// Returns the errors of [`make`](Self::make).
    pub fn create_tmpfile(&self, parent: u64, new: NewObject<'_>) -> Result<Inode, Errno> {
        self.inner.reap_if_low_on_space();
        self.change(|db, shared| {
            let directory = db.directory(parent)?;
            let inode = db.new_inode(&directory, new, shared.now(), shared)?;
            db.mark_unlinked(inode.ino)?;
            shared.lookup_counts.add(inode.ino);
            db.save(inode.clone());
            db.note_result(inode.ino);
            Ok(inode)
        })
    }

    /// Creates another hard link to an object.
    ///
    /// # Errors
    /// EEXIST, EPERM for a directory, EMLINK, and the errors of [`make`](Self::make).
    pub fn link(&self, num: u64, parent: u64, name: &[u8]) -> Result<Inode, Errno> {
        check_name(name)?;
        self.change(|db, shared| {
            shared.durability.has_room()?;
            let mut inode = db.inode(num)?;
            let mut directory = db.directory(parent)?;
            db.ensure_not_conflict_dir(parent, Errno::PERM)?;
            if inode.is_directory() || inode.is_conflict_only() {
                return Err(OpError::new(Errno::PERM));
            }
            if db.link_of(parent, name)?.is_some() {
                return Err(OpError::new(Errno::EXIST));
            }
            let now = shared.now();
            inode.links = inode.links.checked_add(1).ok_or(OpError::new(Errno::MLINK))?;
            inode.changed = now;
            db.unmark_unlinked(num)?;
            db.begin()?;
            db.add_link(&mut directory, name, &inode, now, None)?;
            db.save(inode.clone());
            db.save(directory);
            db.note_result(num);
            db.overlay(&mut inode)?;
            Ok(inode)
        })
    }

    /// Removes a name that does not refer to a directory. Returns the inode number it referred to.
    ///
    /// # Errors
    /// ENOENT, EISDIR, ESTALE, EIO.
    pub fn unlink(&self, parent: u64, name: &[u8]) -> Result<u64, Errno> {
        self.remove(parent, name, false)
    }

    /// Removes an empty directory. Returns its inode number.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENOTEMPTY, ESTALE, EIO.
    pub fn rmdir(&self, parent: u64, name: &[u8]) -> Result<u64, Errno> {
        self.remove(parent, name, true)
    }

    /// Reports whether a directory presents the two versions of a conflict.
    pub fn shows_conflict(&self, num: u64) -> bool {
        self.inner.db.lock().conflicts.contains(&num)
    }

    fn remove(&self, parent: u64, name: &[u8], is_directory: bool) -> Result<u64, Errno> {
        if self.inner.db.lock().conflicts.contains(&parent) {
            return self.remove_side(parent, name, is_directory);
        }
        self.change(|db, shared| {
            let mut directory = db.directory(parent)?;
            let (child, seq) = db.link_of(parent, name)?.ok_or(OpError::new(Errno::NOENT))?;
            let mut inode = db.inode(child)?;
            match (is_directory, inode.is_directory()) {
                (true, false) => return Err(OpError::new(Errno::NOTDIR)),
                (false, true) => return Err(OpError::new(Errno::ISDIR)),
                (true, true) if !db.is_empty(child)? => return Err(OpError::new(Errno::NOTEMPTY)),
                _ => {}
            }
            let now = shared.now();
            db.begin()?;
            db.drop_link(&mut directory, name, &inode, seq, now)?;
            db.save(directory);
            db.drop_link_count(&mut inode, now, shared)?;
            db.note_result(child);
            Ok(child)
        })
    }

    /// Renames a directory entry. Returns the inode number of the replaced object, if there was one.
    ///
    /// # Errors
    /// EEXIST, EISDIR, ENOTDIR, ENOTEMPTY; EINVAL if a directory would become its own descendant; the errors of
    /// [`make`](Self::make).
    pub fn rename(
        &self,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        how: Rename,
    ) -> Result<Option<u64>, Errno> {
        self.rename_whiteout(parent, name, new_parent, new_name, how, None)
    }

    /// Renames and creates an object at the old name, atomically: `RENAME_WHITEOUT`. Returns the inode number of the replaced
    /// object, if there was one. If both names refer to the same file, nothing is renamed and nothing is created.
    ///
    /// # Errors
    /// EINVAL for an exchange, which leaves no free name; the errors of [`rename`](Self::rename).
    pub fn rename_whiteout(
        &self,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        how: Rename,
        leave: Option<NewObject<'_>>,
    ) -> Result<Option<u64>, Errno> {
        check_name(new_name)?;
        if leave.is_some() && how == Rename::Exchange {
            return Err(Errno::INVAL);
        }
        self.change(|db, shared| {
            shared.durability.has_room()?;
            let mut from = db.directory(parent)?;
            let mut to = db.directory(new_parent)?;
            let (child, child_seq) = db.link_of(parent, name)?.ok_or(OpError::new(Errno::NOENT))?;
            for num in [parent, new_parent, child] {
                db.ensure_not_conflict_dir(num, Errno::BUSY)?;
            }
            let mut inode = db.inode(child)?;
            let target = db.link_of(new_parent, new_name)?;
            if let Some((replaced, _)) = target {
                db.ensure_not_conflict_dir(replaced, Errno::BUSY)?;
            }
            if inode.is_directory() && db.is_below(new_parent, child)? {
                return Err(OpError::new(Errno::INVAL));
            }
            let mut replaced = None;
            match (target, how) {
                (None, Rename::Exchange) => return Err(OpError::new(Errno::NOENT)),
                (Some(_), Rename::NoReplace) => return Err(OpError::new(Errno::EXIST)),
                (Some((other, _)), _) if other == child => return Ok(None),
                (Some((other, seq)), Rename::Exchange) => {
                    let other = db.inode(other)?;
                    if other.is_directory() && db.is_below(parent, other.ino)? {
                        return Err(OpError::new(Errno::INVAL));
                    }
                    replaced = Some((other, seq));
                }
                (Some((other, seq)), Rename::Replace) => {
                    let other = db.inode(other)?;
                    match (inode.is_directory(), other.is_directory()) {
                        (true, false) => return Err(OpError::new(Errno::NOTDIR)),
                        (false, true) => return Err(OpError::new(Errno::ISDIR)),
                        (true, true) if !db.is_empty(other.ino)? => {
                            return Err(OpError::new(Errno::NOTEMPTY));
                        }
                        _ => {}
                    }
                    replaced = Some((other, seq));
                }
                (None, _) => {}
            }
            let now = shared.now();
            let left = leave.map(|new| db.new_inode(&from, new, now, shared)).transpose()?;
            db.begin()?;
            db.drop_link(&mut from, name, &inode, child_seq, now)?;
            // Both may be the same directory: each step reloads the inode that the last one saved.
            db.save(from);
            if new_parent == parent {
                to = db.directory(new_parent)?;
            }
            if let Some((other, seq)) = &replaced {
                db.drop_link(&mut to, new_name, other, *seq, now)?;
            }
            db.add_link(&mut to, new_name, &inode, now, None)?;
            db.save(to);
            inode = db.inode(child)?;
            inode.changed = now;
            db.save(inode);
            if let Some(mut left) = left {
                left.links = 1;
                let mut from = db.directory(parent)?;
                db.add_link(&mut from, name, &left, now, None)?;
                db.save(left);
                db.save(from);
            }
            db.note_result(0);
            let Some((other, _)) = replaced else { return Ok(None) };
            let mut other = db.inode(other.ino)?;
            match how {
                Rename::Exchange => {
                    let mut from = db.directory(parent)?;
                    db.add_link(&mut from, name, &other, now, None)?;
                    db.save(from);
                    other = db.inode(other.ino)?;
                    other.changed = now;
                    db.save(other.clone());
                    Ok(None)
                }
                _ => {
                    db.drop_link_count(&mut other, now, shared)?;
                    db.note_result(other.ino);
                    Ok(Some(other.ino))
                }
            }
        })
    }
}

fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"" => Err(Errno::NOENT),
        b"." | b".." => Err(Errno::EXIST),
        _ if name.len() > MAX_NAME_BYTES => Err(Errno::NAMETOOLONG),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

impl ReplicaDb {
    pub(crate) fn link_of(&self, parent: u64, name: &[u8]) -> Result<Option<(u64, Seq)>> {
        let mut query =
            self.db.prepare_cached("SELECT child, set_seq FROM link WHERE parent = ?1 AND name = ?2")?;
        let found = query.query_row(params![parent as i64, name], |row| {
            Ok((number(row.get(0)?), Seq(number(row.get(1)?))))
        });
        Ok(found.optional()?)
    }

    /// Fails with `otherwise` for a directory that presents a conflict: it is changed only by removing one side.
    fn ensure_not_conflict_dir(&self, num: u64, otherwise: Errno) -> Result<()> {
        if self.conflicts.contains(&num) { Err(OpError::new(otherwise)) } else { Ok(()) }
    }

    /// Returns a parent directory of an object. A directory has at most one.
    pub(crate) fn parent_of(&self, num: u64) -> Result<Option<u64>> {
        if num == ROOT {
            return Ok(Some(ROOT));
        }
        let mut query = self.db.prepare_cached("SELECT parent FROM link WHERE child = ?1 LIMIT 1")?;
        Ok(query.query_row([num as i64], |row| row.get(0)).optional()?.map(number))
    }

    pub(crate) fn is_empty(&self, num: u64) -> Result<bool> {
        let mut query = self.db.prepare_cached("SELECT 1 FROM link WHERE parent = ?1 LIMIT 1")?;
        Ok(query.query_row([num as i64], |_| Ok(())).optional()?.is_none())
    }

    /// Reports whether an object is `above` itself or a descendant of it.
    pub(crate) fn is_below(&self, num: u64, above: u64) -> Result<bool> {
        let (mut at, mut detector) = (num, CycleDetector::default());
        // A cycle in the tree would make the walk endless.
        while !detector.closes_cycle(at) {
            if at == above {
                return Ok(true);
            }
            match self.parent_of(at)? {
                Some(parent) if parent != at => at = parent,
                _ => return Ok(false),
            }
        }
        tracing::error!(
            "directory {num} of the replica is its own ancestor: the operation \
            fails with EIO; move the cache directory away and mount again"
        );
        Err(OpError::new(Errno::IO))
    }

    pub(crate) fn list(&mut self, parent: u64, after: &[u8], limit: usize) -> Result<Vec<DirEntry>> {
        if !self.inode(parent)?.is_directory() {
            return Err(OpError::new(Errno::NOTDIR));
        }
        self.flush()?;
        let query = format!(
            "SELECT {}, link.name FROM link JOIN object ON object.num = link.child
             WHERE link.parent = ?1 AND link.name > ?2 ORDER BY link.name LIMIT ?3",
            Inode::COLUMNS,
        );
        let mut query = self.db.prepare_cached(&query)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = query.query_map(params![parent as i64, after, limit], |row| {
            Ok(DirEntry { inode: Inode::from_row(row)?, name: row.get("name")? })
        })?;
        let mut all = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        drop(query);
        for listed in &mut all {
            self.overlay(&mut listed.inode)?;
        }
        Ok(all)
    }

    fn new_inode(
        &mut self,
        directory: &Inode,
        new: NewObject<'_>,
        now: Time,
        shared: &Shared,
    ) -> Result<Inode> {
        if new.target.len() > MAX_SYMLINK_TARGET_BYTES {
            return Err(OpError::new(Errno::NAMETOOLONG));
        }
        shared.durability.has_room()?;
        self.check_quota(new.owner.0, Usage { bytes: 0, objects: 1 }, false)?;
        let hands_down = directory.mode & SETGID != 0;
        let inherited = if hands_down && new.kind == Kind::Directory { SETGID } else { 0 };
        // Allocated before the change is recorded: a failure here has changed nothing.
        let (num, file) = match (new.kind == Kind::Regular).then(|| shared.backing_pool.take()) {
            None => (self.new_number()?, None),
            Some(Some((num, file))) => (num, Some(file)),
            Some(None) => {
                let num = self.new_number()?;
                let file = shared.files.create(num)?;
                point(Failpoint::ReplicaMade)?;
                (num, Some(file))
            }
        };
        // The creator usually opens the file next.
        self.last_created = file.map(|file| (num, Arc::new(file)));
        let mut inode = Inode {
            ino: num,
            id: self.new_id(),
            kind: new.kind,
            mode: new.mode & 0o7777 | inherited,
            owner: new.owner,
            group: if hands_down { directory.group } else { new.group },
            modified: now,
            changed: now,
            target: Arc::from(new.target),
            size: new.target.len() as u64,
            state: CacheState::Complete,
            // The file may be committed before it is opened for writing, and that open is not committed at once.
            maybe_dirty: new.kind == Kind::Regular,
            links: 0,
            subdirs: 0,
            created_seq: Seq(0),
            dirty: Dirty::empty(),
            generation: 0,
            pinned: false,
            xattrs: false,
            last_opened: now,
        };
        self.mark_dirty(&mut inode, Dirty::NEW)?;
        Ok(inode)
    }

    /// Records the base version of a name that is about to change.
    fn record_base_link(&mut self, parent: u64, name: &[u8], now: Option<(u64, Seq)>) -> Result<()> {
        // A name that the store does not have yet was changed here before, which recorded its base.
        if now.is_some_and(|(_, seq)| seq == Seq(0)) {
            return Ok(());
        }
        let n = self.next_dirty_order();
        self.db
            .prepare_cached(
                "INSERT OR IGNORE INTO base_link (parent, name, child, set_seq, n) VALUES (?1, \
                    ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                parent as i64,
                name,
                now.map(|(child, _)| child as i64),
                now.map_or(0, |(_, seq)| seq.0 as i64),
                n
            ])?;
        Ok(())
    }

    /// Adds a name that does not exist. A name that again refers to its base object is no longer a local change.
    pub(crate) fn add_link(
        &mut self,
        directory: &mut Inode,
        name: &[u8],
        child: &Inode,
        now: Time,
        agreed: Option<Seq>,
    ) -> Result<()> {
        let mut seq = agreed.unwrap_or(Seq(0));
        if agreed.is_none() {
            self.record_base_link(directory.ino, name, None)?;
            if child.created_seq != Seq(0)
                && let Some(base) = self.remove_base_if_equal(directory.ino, name, child.ino)?
            {
                seq = base;
            }
        }
        self.db
            .prepare_cached("INSERT INTO link (parent, name, child, set_seq) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![directory.ino as i64, name, child.ino as i64, seq.0 as i64])?;
        if child.is_directory() {
            directory.subdirs += 1;
        }
        self.names_changed(directory, now, agreed.is_some())
    }

    /// Drops the base record of a name that refers to its base object again, and returns the commit that set the name.
    fn remove_base_if_equal(&mut self, parent: u64, name: &[u8], child: u64) -> Result<Option<Seq>> {
        let mut query = self.db.prepare_cached(
            "DELETE FROM base_link WHERE parent = ?1 AND name = ?2 AND child = ?3 RETURNING set_seq",
        )?;
        let seq = query.query_row(params![parent as i64, name, child as i64], |row| row.get(0)).optional()?;
        Ok(seq.map(|seq| Seq(number(seq))))
    }

    /// Removes a name that refers to `child` and was set by commit `seq`.
    fn drop_link(
        &mut self,
        directory: &mut Inode,
        name: &[u8],
        child: &Inode,
        seq: Seq,
        now: Time,
    ) -> Result<()> {
        self.record_base_link(directory.ino, name, Some((child.ino, seq)))?;
        self.remove_dentry(directory, name, child)?;
        if seq == Seq(0) {
            // The name did not exist in the base and does not exist now: no change is left.
            self.db
                .prepare_cached("DELETE FROM base_link WHERE parent = ?1 AND name = ?2 AND child IS NULL")?
                .execute(params![directory.ino as i64, name])?;
        }
        self.names_changed(directory, now, false)
    }

    pub(crate) fn remove_dentry(&mut self, directory: &mut Inode, name: &[u8], child: &Inode) -> Result<()> {
        self.db
            .prepare_cached("DELETE FROM link WHERE parent = ?1 AND name = ?2")?
            .execute(params![directory.ino as i64, name])?;
        if child.is_directory() {
            directory.subdirs = directory.subdirs.saturating_sub(1);
        }
        Ok(())
    }

    fn names_changed(&mut self, directory: &mut Inode, now: Time, agreed: bool) -> Result<()> {
        directory.changed = now;
        if !agreed {
            // The base version recorded here still has the old time.
            self.mark_dirty(directory, Dirty::MODIFIED)?;
            directory.modified = now;
        }
        Ok(())
    }

    /// Drops one link of an object; after the last one the object becomes unlinked.
    pub(crate) fn drop_link_count(&mut self, inode: &mut Inode, now: Time, shared: &Shared) -> Result<()> {
        inode.links = inode.links.saturating_sub(1);
        inode.changed = now;
        self.save(inode.clone());
        if inode.links > 0 {
            return Ok(());
        }
        self.mark_unlinked(inode.ino)?;
        match shared.is_referenced(inode.ino) || self.opens.contains_key(&inode.ino) {
            true => Ok(()),
            false => self.drop_unlinked(inode.ino),
        }
    }

    /// Removes an unlinked object without references. Its row stays, under its id, while the store has the object.
    pub(crate) fn drop_unlinked(&mut self, num: u64) -> Result<()> {
        if !self.unlinked_open.contains(&num) {
            return Ok(());
        }
        let Some(mut inode) = self.find(num)? else { return Ok(()) };
        if inode.links > 0 {
            return Ok(());
        }
        self.begin()?;
        if inode.is_regular() {
            self.schedule_unlink(num)?;
        }
        // An object that the store never had is not part of the base.
        if inode.created_seq == Seq(0) || !self.is_in_base(num)? {
            self.erase(num)?;
        } else {
            // Local changes are discarded: the attributes are those of the base.
            if let Some(Some(stored)) = self.base(num)? {
                inode.mode = stored.object.mode;
                inode.owner = stored.object.owner;
                inode.group = stored.object.group;
                inode.modified = stored.object.modified;
                if inode.is_regular() {
                    inode.size = stored.object.content.size;
                }
                self.set_xattrs(&mut inode, &stored.object)?;
            }
            self.finish_refetch(num)?;
            inode.state = CacheState::Absent;
            inode.maybe_dirty = false;
            inode.dirty = Dirty::empty();
            self.db.prepare_cached("DELETE FROM base_object WHERE num = ?1")?.execute([num as i64])?;
            self.save(inode);
        }
        self.unmark_unlinked(num)?;
        Ok(())
    }

    /// Reports whether a name that referred to the object in the base was changed since.
    pub(crate) fn is_in_base(&self, num: u64) -> Result<bool> {
        let mut query = self.db.prepare_cached("SELECT 1 FROM base_link WHERE child = ?1 LIMIT 1")?;
        Ok(query.query_row([num as i64], |_| Ok(())).optional()?.is_some())
    }
}
