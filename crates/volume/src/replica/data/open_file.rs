//! Open files.
//!
//! Users read and write the backing file directly, so the replica does not see individual writes. A file is therefore marked
//! as possibly modified before it is opened for writing, and its size and time are read from the backing file at the last
//! close.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use rustix::fs::{Timespec, Timestamps};
use rustix::io::Errno;

use crate::failpoint::{Failpoint, OnDisk, on_disk, point};
use crate::id::Seq;
use crate::object::Time;
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::without_privileges;
use crate::replica::db::inode::{CacheState, Dirty, Inode};
use crate::replica::db::open_backing::OpenFile;
use crate::replica::db::open_backing::reopen;
use crate::replica::error::{OpError, Result, errno};
use crate::replica::{Replica, Shared};

/// An open file.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The backing file, for reading and writing.
    pub file: Arc<File>,
    /// Distinguishes this version of the file from earlier and later ones.
    pub session: u64,
    /// The file is completely cached, so it may be read without the replica. Otherwise [`Replica::ensure_present`] fetches
    /// missing ranges.
    pub complete: bool,
}

impl Replica {
    /// Opens a regular file until [`release_open`](Self::release_open). A file opened for writing is fetched completely
    /// first, unless it is truncated.
    ///
    /// # Errors
    /// EISDIR and EINVAL for other objects; ESTALE, EIO; the errors of [`ensure_present`](Self::ensure_present).
    pub fn open_file(&self, num: u64, write: bool, truncate: bool) -> Result<Opened, Errno> {
        let mut mark = false;
        // Blocks downloads of the old content during the truncation.
        let exclusive = (write && truncate).then(|| self.inner.shared.fetching.lock_file(num));
        let opened = loop {
            let missing = {
                let mut db = self.inner.db.lock();
                let inode = db.inode(num).map_err(|fail| fail.errno)?;
                match &inode.kind {
                    crate::object::Kind::Regular => {}
                    crate::object::Kind::Directory => return Err(Errno::ISDIR),
                    _ => return Err(Errno::INVAL),
                }
                if write && db.is_unsynced(num) {
                    drop(db);
                    self.inner.sync_one_fetched(num)?;
                    continue;
                }
                if db.is_being_reaped(num).map_err(|fail| fail.errno)? {
                    drop(db);
                    self.inner.finish_reaping(num)?;
                    continue;
                }
                if write && truncate && inode.state == CacheState::Partial {
                    // Makes it durable first that no ranges are cached: after a crash during the truncation the file holds no
                    // valid data.
                    db.drop_cached_content(inode).map_err(|fail| fail.errno)?;
                    drop(db);
                    self.sync()?;
                    continue;
                }
                if !write || truncate || inode.state == CacheState::Complete {
                    break open(&mut db, &self.inner.shared, inode, write, truncate, &mut mark)
                        .map_err(|fail| fail.errno)?;
                }
                inode.size
            };
            self.ensure_present(num, 0..missing)?;
        };
        if mark {
            if let Err(errno) = point(Failpoint::ReplicaOpened).and_then(|()| self.sync()) {
                self.release_open(num, write, opened.session);
                return Err(errno);
            }
            self.inner.db.lock().uncommitted_marks.remove(&num);
        } else if write {
            self.inner.shared.durability.notify_changed();
        }
        if truncate {
            let emptied = point(Failpoint::ReplicaEmptied).map_err(std::io::Error::from);
            if let Err(error) = emptied.and_then(|()| opened.file.set_len(0)) {
                self.release_open(num, write, opened.session);
                return Err(errno(error));
            }
        }
        drop(exclusive);
        Ok(opened)
    }

    /// Notes that an open file may be mapped, and then written through the mapping after its last close.
    pub fn mark_mapped(&self, num: u64, session: u64) {
        if let Some(open) = self.inner.db.lock().opens.get_mut(&num).filter(|open| open.session == session) {
            open.maps_writable = true;
        }
    }

    /// [Releases](Self::release_open) an open for writing, unless the file is still mapped writably: returns `None` then, and
    /// the caller tries again later. `has_writers` reports whether any process can write to a file.
    pub fn close_unless_mapped(
        &self,
        num: u64,
        session: u64,
        has_writers: impl Fn(&File) -> bool,
    ) -> Option<bool> {
        {
            let mut db = self.inner.db.lock();
            let open = db.opens.get_mut(&num).filter(|open| open.session == session);
            let mut last = open.filter(|open| open.maps_writable && open.writers == 1);
            if last.as_mut().is_some_and(|open| open.is_written_elsewhere(has_writers)) {
                return None;
            }
        }
        Some(self.release_open(num, true, session))
    }

    /// Returns the backing file of an open object, for this version of it.
    pub fn open_file_of(&self, num: u64, session: u64) -> Option<Arc<File>> {
        let db = self.inner.db.lock();
        db.opens.get(&num).filter(|open| open.session == session).map(|open| open.file.clone())
    }

    /// Opens a read-only descriptor of an open file.
    ///
    /// # Errors
    /// EMFILE, ENFILE.
    pub fn reopen_read_only(&self, num: u64, file: &File) -> std::io::Result<File> {
        self.inner.shared.files.reopen_read_only(num, file)
    }

    /// Invalidates the attributes of an object in the kernel's caches.
    pub fn invalidate_attributes(&self, num: u64) {
        if let Some(caches) = self.inner.shared.kernel_cache.get() {
            caches.object_changed(num);
        }
    }

    /// Releases an open. The last release for writing records the new size and time; returns whether the file was changed.
    pub fn release_open(&self, num: u64, write: bool, session: u64) -> bool {
        let closed = self.change(|db, shared| {
            let open = db.opens.get_mut(&num).filter(|open| open.session == session);
            let Some(open) = open else { return Ok(false) };
            let file = open.file.clone();
            let users = if write { &mut open.writers } else { &mut open.readers };
            *users = users.saturating_sub(1);
            let (writers, last) = (open.writers, open.readers == 0 && open.writers == 0);
            let grew = writers == 0 && std::mem::take(&mut open.length_recorded);
            if last {
                db.opens.remove(&num);
                db.uncount_unlinked(num)?;
            }
            let mut changed = false;
            point(Failpoint::ReplicaClosed)?;
            if write
                && writers == 0
                && let Some(inode) = db.find(num)?
            {
                changed = db.record_written(inode, &file, grew)?;
            }
            if last {
                shared.cache_changed.notify();
            }
            if last && db.unlinked_open.contains(&num) && !shared.is_referenced(num) {
                db.drop_unlinked(num)?;
                shared.lookup_counts.removed(num);
            }
            Ok(changed)
        });
        closed.unwrap_or_else(|errno| {
            tracing::error!(
                "cannot record the writes to object {num}: {errno}; they are \
                recorded when the volume is mounted again"
            );
            false
        })
    }

    /// Reports whether an open file is still the current version of the object.
    pub fn is_latest(&self, num: u64, session: u64) -> bool {
        self.inner.db.lock().opens.get(&num).is_some_and(|open| open.session == session)
    }

    /// Sets the length of a regular file.
    ///
    /// # Errors
    /// EFBIG, ENOSPC; EDQUOT if a quota limit would be exceeded; the errors of [`open_file`](Self::open_file).
    pub fn truncate(&self, num: u64, size: u64) -> Result<(), Errno> {
        let opened = self.open_file(num, true, size == 0)?;
        let longer = |size| size > 0 && opened.file.metadata().is_ok_and(|now| now.len() < size);
        let mut set = match self.is_limited() && longer(size) {
            true => self.grow(num, opened.session, size),
            false => Ok(()),
        };
        if size > 0 && set.is_ok() {
            set = opened.file.set_len(size).map_err(errno);
        }
        if self.is_limited() {
            // The file may have other opens.
            set = set.and(self.recount(num, opened.session));
        }
        self.release_open(num, true, opened.session);
        set
    }

    /// Makes the data and metadata of a file durable.
    ///
    /// # Errors
    /// The errors of `fsync(2)`; EIO.
    pub fn sync_file(&self, num: u64) -> Result<(), Errno> {
        let (open, inode) =
            self.read(|db| Ok((db.opens.get(&num).map(|open| open.file.clone()), db.inode(num)?)))?;
        self.sync_content(open, &inode)
    }

    /// Makes the data written through an open and the file's metadata durable.
    ///
    /// # Errors
    /// ESTALE if the file was unlinked while it was open and restored by a change of another node, without the data written
    /// through this open; the errors of [`sync_file`](Self::sync_file).
    pub fn sync_open(&self, num: u64, session: u64) -> Result<(), Errno> {
        let (open, inode) = self.read(|db| {
            let inode = db.inode(num)?;
            match db.opens.get(&num).filter(|open| open.session == session) {
                Some(open) => Ok((Some(open.file.clone()), inode)),
                // The data of an unlinked file is discarded at its last close.
                None if inode.links == 0 => Ok((None, inode)),
                None => Err(OpError::new(Errno::STALE)),
            }
        })?;
        self.sync_content(open, &inode)
    }

    fn sync_content(&self, open: Option<Arc<File>>, inode: &Inode) -> Result<(), Errno> {
        let num = inode.ino;
        if inode.is_regular() && inode.state == CacheState::Complete {
            let file = match open {
                Some(file) => Ok(file),
                None => self.inner.shared.files.existing(num).map(Arc::new),
            };
            let synced = file.and_then(|file| {
                file.sync_all()?;
                on_disk(OnDisk::File(&file));
                Ok(())
            });
            let synced = synced.and_then(|()| match inode.created_seq == Seq(0) {
                true => self.inner.shared.files.sync_name(num),
                false => Ok(()),
            });
            synced.map_err(errno)?;
            point(Failpoint::ReplicaFileSynced)?;
            if let Some(open) = self.inner.db.lock().opens.get_mut(&num) {
                open.synced |= open.writers > 0;
            }
        }
        self.sync()
    }

    /// Returns the space of the cache's file system.
    ///
    /// # Errors
    /// The errors of `statvfs(3)`.
    pub fn space(&self) -> Result<rustix::fs::StatVfs, Errno> {
        self.inner.shared.files.space()
    }
}

/// Opens a file that is open already in another process, whose writes may continue: its length and times are kept.
pub(crate) fn adopt(db: &mut ReplicaDb, shared: &Shared, mut inode: Inode, write: bool) -> Result<Opened> {
    if write && inode.state == CacheState::Complete {
        let (size, modified) = size_and_mtime(&shared.files.existing(inode.ino)?)?;
        apply_size_and_mtime(&mut inode, (size, modified));
    }
    open_as(db, shared, inode, (write, false), &mut false, true)
}

fn open(
    db: &mut ReplicaDb,
    shared: &Shared,
    inode: Inode,
    write: bool,
    truncate: bool,
    mark: &mut bool,
) -> Result<Opened> {
    open_as(db, shared, inode, (write, truncate), mark, false)
}

/// `adopted`: the file is open already in another process.
fn open_as(
    db: &mut ReplicaDb,
    shared: &Shared,
    mut inode: Inode,
    (write, truncate): (bool, bool),
    mark: &mut bool,
    adopted: bool,
) -> Result<Opened> {
    let num = inode.ino;
    let mut reads_only = false;
    let file = match db.opens.get_mut(&num) {
        // Writable descriptors are for writers only: see `close_unless_mapped`.
        Some(open) if !write && !open.reads_only && inode.state == CacheState::Complete => {
            shared.files.reopen_read_only(num, &open.file).map_or_else(|_| open.file.clone(), Arc::new)
        }
        Some(open) => {
            if write && open.reads_only {
                open.file = Arc::new(shared.files.existing(num).or_else(|_| reopen(&open.file, true))?);
                open.reads_only = false;
            }
            open.file.clone()
        }
        None if !write && inode.state == CacheState::Complete => {
            reads_only = true;
            Arc::new(shared.files.existing_to_read(num)?)
        }
        None if inode.state == CacheState::Complete => match db.last_created.take() {
            Some((latest, file)) if latest == num => file,
            _ => Arc::new(shared.files.existing(num)?),
        },
        None => {
            let file = shared.files.open_or_create(num)?;
            file.set_len(inode.size)?;
            Arc::new(file)
        }
    };
    if write && truncate && inode.state != CacheState::Complete {
        // Before the file is marked complete: it may have its full length without any data.
        file.set_len(0)?;
    }
    let first = db.opens.get(&num).is_none_or(|open| open.writers == 0);
    if write {
        if first && !adopted {
            // From now on the backing file is authoritative for the modification time.
            set_modified(&file, inode.modified)?;
        }
        // Concurrent opens for writing wait for the same mark to become durable.
        if !inode.maybe_dirty {
            db.uncommitted_marks.insert(num);
        }
        *mark = db.uncommitted_marks.contains(&num);
        inode.maybe_dirty = true;
        db.mark_dirty(&mut inode, Dirty::CONTENT)?;
        if truncate {
            db.finish_refetch(num)?;
            inode.state = CacheState::Complete;
        }
        db.save(inode.clone());
    }
    db.record_open(num)?;
    if db.unlinked_open.contains(&num) {
        db.count_unlinked(num)?;
    }
    let session = db.new_session();
    let open = db.opens.entry(num);
    let open = open.or_insert_with(|| OpenFile {
        session,
        file: file.clone(),
        readers: 0,
        writers: 0,
        synced: false,
        length_recorded: false,
        maps_writable: false,
        reads_only,
    });
    let users = if write { &mut open.writers } else { &mut open.readers };
    *users += 1;
    Ok(Opened { file, session: open.session, complete: inode.state == CacheState::Complete })
}

pub(crate) fn set_modified(file: &File, modified: Time) -> Result<(), Errno> {
    let unchanged = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let last_modification = Timespec {
        tv_sec: modified.0.div_euclid(1_000_000_000),
        tv_nsec: modified.0.rem_euclid(1_000_000_000),
    };
    rustix::fs::futimens(file.as_fd(), &Timestamps { last_access: unchanged, last_modification })
}

/// Returns size and modification time of a backing file.
pub(crate) fn size_and_mtime(file: &File) -> Result<(u64, Time), Errno> {
    let stat = rustix::fs::fstat(file.as_fd())?;
    let nanoseconds = stat.st_mtime_nsec as i64;
    let time = (stat.st_mtime as i64).saturating_mul(1_000_000_000).saturating_add(nanoseconds);
    Ok((stat.st_size as u64, Time(time)))
}

impl ReplicaDb {
    /// Takes size and modification time from the backing file while the file is open for writing.
    pub(crate) fn overlay(&self, inode: &mut Inode) -> Result<()> {
        if inode.maybe_dirty
            && let Some(open) = self.opens.get(&inode.ino).filter(|open| open.writers > 0)
        {
            apply_size_and_mtime(inode, size_and_mtime(&open.file).map_err(OpError::from)?);
        }
        Ok(())
    }

    /// Discards the record of cached ranges.
    fn drop_cached_content(&mut self, mut inode: Inode) -> Result<()> {
        self.clear_present(inode.ino)?;
        inode.state = CacheState::Absent;
        self.save(inode);
        Ok(())
    }

    /// Records size and time after the last close for writing. Returns whether the file was changed.
    pub(crate) fn record_written(&mut self, mut inode: Inode, file: &File, grew: bool) -> Result<bool> {
        let before = (inode.size, inode.modified);
        apply_size_and_mtime(&mut inode, size_and_mtime(file)?);
        let changed = grew || (inode.size, inode.modified) != before;
        if changed {
            inode.generation += 1;
            // Nothing has removed the set-ID bits for writes that bypassed the daemon.
            let mode = without_privileges(inode.mode);
            if mode != inode.mode {
                self.mark_dirty(&mut inode, Dirty::MODE)?;
                inode.mode = mode;
            }
        }
        self.begin()?;
        self.save(inode);
        Ok(changed)
    }
}

fn apply_size_and_mtime(inode: &mut Inode, (size, modified): (u64, Time)) {
    inode.size = size;
    if modified != inode.modified {
        inode.modified = modified;
        inode.changed = inode.changed.max(modified);
    }
}
