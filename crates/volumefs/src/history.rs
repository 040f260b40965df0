//! Earlier versions of files and directories: read-only, from the store.
//!
//! Each directory has an entry [`HISTORY`] that listings do not show. Names in it are points in time, which resolve to the
//! directory as it was then, and `NAME@WHEN`, which resolve to one of its entries. Nothing can be created there, so users lose
//! no names. In the directory itself `NAME@WHEN` resolves likewise if that is enabled, or if the mount is read-only.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use shunt_fuse::{Entry, Errno, Expiry, FileHandle, NodeId, Opened};
use shunt_volume::history::{PointInTime, View};
use shunt_volume::id::Seq;
use shunt_volume::object::{Kind, VersionedObject};
use shunt_volume::replica::{CacheState, DirEntry, Dirty, Fetcher, Inode};

use crate::VolumeFs;
use crate::open_file::errno;
use crate::serving_memory::ServingMemory;

/// Name of the entry that contains a directory's history. It is not listed and cannot be given to a new file.
pub(crate) const HISTORY: &[u8] = shunt_volume::history::HISTORY.as_bytes();

/// First inode number of historical objects; a replica's own numbers never reach it.
const FIRST_HISTORIC_INO: u64 = 1 << 62;

/// A history entry has the inode number of its directory with this bit set.
const HISTORY_DIR_BIT: u64 = 1 << 61;

/// The history of a volume, as shown in a mount.
pub(crate) struct HistoryFs {
    view: View,
    contents: Arc<dyn Fetcher>,
    /// Historical inodes that the kernel holds, by number, with their lookup counts.
    lookups: Mutex<HashMap<u64, (Inode, u64)>>,
    /// Tells the next daemon what the inodes are.
    serving: Option<ServingMemory>,
}

/// An open historical file: an unlinked file, filled as it is read.
pub(crate) struct HistoricFile {
    stored: VersionedObject,
    data: Arc<OwnedFd>,
    file: File,
    present: Mutex<Vec<Range<u64>>>,
}

pub(crate) fn is_historic(ino: NodeId) -> bool {
    ino.0 >= HISTORY_DIR_BIT
}

/// Returns the directory whose history entry this is.
fn whose_history(ino: NodeId) -> Option<u64> {
    (HISTORY_DIR_BIT..FIRST_HISTORIC_INO).contains(&ino.0).then_some(ino.0 & !HISTORY_DIR_BIT)
}

/// Checks that a name is free for new files.
///
/// # Errors
/// EPERM for the history entry.
pub(crate) fn ensure_not_reserved(name: &[u8]) -> Result<&[u8], Errno> {
    if name == HISTORY { Err(Errno::PERM) } else { Ok(name) }
}

/// Returns the inode number of a node that can be changed, or EROFS for a historical one.
pub(crate) fn ensure_live(ino: NodeId) -> Result<u64, Errno> {
    if is_historic(ino) { Err(Errno::ROFS) } else { Ok(ino.0) }
}

impl VolumeFs {
    /// Like [`ensure_live`](Self::ensure_live), and returns EROFS also while the mount is read-only.
    pub(crate) fn changeable(&self, ino: NodeId) -> Result<u64, Errno> {
        if (self.is_read_only)() { Err(Errno::ROFS) } else { ensure_live(ino) }
    }
}

/// Turns ENOENT into EROFS for the names of historical objects, which cannot be removed.
pub(crate) fn map_historic_error<T>(name: &[u8], result: Result<T, Errno>) -> Result<T, Errno> {
    match result {
        Err(Errno::NOENT) if name == HISTORY || PointInTime::split(name).is_some() => Err(Errno::ROFS),
        result => result,
    }
}

/// Returns the inode number of a historical object. It depends only on the object and the log position, so stat and listings
/// agree.
fn number(stored: &VersionedObject, at: Seq) -> u64 {
    let mut hasher = DefaultHasher::new();
    (stored.object.id, at).hash(&mut hasher);
    FIRST_HISTORIC_INO | hasher.finish() >> 2
}

/// Builds the inode of a historical object. Its generation is the commit of the view.
fn historic_inode(stored: &VersionedObject, at: Seq) -> Inode {
    let object = &stored.object;
    Inode {
        ino: number(stored, at),
        id: object.id,
        kind: object.kind,
        mode: object.mode,
        owner: object.owner,
        group: object.group,
        modified: object.modified,
        changed: object.modified,
        target: Arc::from(&object.target[..]),
        size: object.content.size.max(object.target.len() as u64),
        state: CacheState::Complete,
        maybe_dirty: false,
        links: stored.links.max(1),
        subdirs: 0,
        created_seq: stored.created,
        dirty: Dirty::empty(),
        generation: at.0,
        pinned: false,
        xattrs: !object.xattrs.is_empty(),
        last_opened: object.modified,
    }
}

/// Builds the inode of a directory's history entry.
fn history_inode(num: u64, directory: Inode) -> Inode {
    Inode { ino: HISTORY_DIR_BIT | num, mode: 0o555, subdirs: 0, xattrs: false, ..directory }
}

impl HistoryFs {
    pub(crate) fn new(view: View, contents: Arc<dyn Fetcher>) -> Self {
        Self { view, contents, lookups: Mutex::default(), serving: None }
    }

    pub(crate) fn add_lookup(&self, inode: &Inode) {
        let mut lookups = self.lookups.lock();
        let count = &mut lookups.entry(inode.ino).or_insert_with(|| (inode.clone(), 0)).1;
        *count += 1;
        if let Some(serving) = self.serving.as_ref().filter(|_| *count == 1) {
            serving.add_historic(inode.ino, inode.id, Seq(inode.generation));
        }
    }

    pub(crate) fn remove_lookups(&self, num: u64, uses: u64) {
        let mut lookups = self.lookups.lock();
        if let Some((_, count)) = lookups.get_mut(&num) {
            *count = count.saturating_sub(uses);
            if *count == 0 {
                lookups.remove(&num);
            }
        }
        // Also for an inode that only an earlier daemon looked up.
        if let Some(serving) = self.serving.as_ref().filter(|_| !lookups.contains_key(&num)) {
            serving.remove_historic(num);
        }
    }

    /// Returns an inode that an earlier daemon looked up.
    fn restore(&self, num: u64) -> Result<Inode, Errno> {
        let (id, at) = self.serving.as_ref().and_then(|serving| serving.historic(num)).ok_or(Errno::STALE)?;
        let inode = historic_inode(&self.view.object(id, at)?, at);
        self.lookups.lock().entry(num).or_insert_with(|| (inode.clone(), 0));
        Ok(inode)
    }

    fn get(&self, num: u64) -> Result<Inode, Errno> {
        self.lookups.lock().get(&num).map(|(inode, _)| inode.clone()).ok_or(Errno::STALE)
    }
}

impl VolumeFs {
    /// The history of the volume.
    ///
    /// # Errors
    /// ESTALE without history; ENETUNREACH while the store is unreachable, or the node is offline on purpose.
    fn reachable_history(&self) -> Result<&HistoryFs, Errno> {
        let past = self.history.as_ref().ok_or(Errno::STALE)?;
        if past.contents.is_reachable() { Ok(past) } else { Err(Errno::NETUNREACH) }
    }

    /// Returns an inode, current or historical.
    pub(crate) fn inode(&self, ino: NodeId) -> Result<Inode, Errno> {
        match (&self.history, is_historic(ino)) {
            (Some(past), true) => past.get(ino.0).or_else(|_| match whose_history(ino) {
                Some(num) => Ok(history_inode(num, self.replica.get(num)?)),
                None => past.restore(ino.0),
            }),
            _ => self.replica.get(ino.0),
        }
    }

    pub(crate) fn set_memory(&mut self, serving: &ServingMemory) {
        if let Some(history) = &mut self.history {
            history.serving = Some(serving.clone());
        }
    }

    /// Returns the entry of a historical inode, and increments its lookup count.
    pub(crate) fn historic_entry(&self, inode: &Inode) -> Entry {
        if let Some(past) = &self.history {
            past.add_lookup(inode);
        }
        self.build_entry(inode)
    }

    /// Looks up a name in a historical directory.
    pub(crate) fn lookup_historic(&self, parent: NodeId, name: &[u8]) -> Result<Entry, Errno> {
        if let Some(num) = whose_history(parent) {
            let then = match name {
                b"." => Some(self.history(num)?),
                b".." => Some(self.build_entry(&self.replica.get(num)?)),
                name => match PointInTime::parse(name) {
                    Some(when) => self.lookup_at(num, b"", when)?,
                    None => match PointInTime::split(name) {
                        Some((name, when)) => self.lookup_at(num, name, when)?,
                        None => None,
                    },
                },
            };
            return Ok(then.unwrap_or_else(|| Entry::absent(Expiry::NEVER_CACHED)));
        }
        let directory = self.inode(parent)?;
        if matches!(name, b"." | b"..") {
            return Ok(self.historic_entry(&directory));
        }
        let at = Seq(directory.generation);
        match self.reachable_history()?.view.child(directory.id, name, at) {
            Ok(stored) => Ok(self.historic_entry(&historic_inode(&stored, at))),
            Err(Errno::NOENT) => Ok(Entry::absent(Expiry::NEVER_CACHED)),
            Err(errno) => Err(errno),
        }
    }

    /// Returns the history entry of a directory.
    fn history(&self, num: u64) -> Result<Entry, Errno> {
        Ok(self.historic_entry(&history_inode(num, self.replica.get(num)?)))
    }

    /// Looks up a name that does not exist, but may name a historical object.
    pub(crate) fn lookup_absent(&self, parent: NodeId, name: &[u8]) -> Result<Option<Entry>, Errno> {
        match PointInTime::split(name) {
            _ if self.history.is_none() => Ok(None),
            _ if name == HISTORY => self.history(parent.0).map(Some),
            Some((name, when)) if self.timestamped_names || (self.is_read_only)() => {
                self.lookup_at(parent.0, name, when)
            }
            _ => Ok(None),
        }
    }

    /// Looks up an entry of a directory at a point in time, or the directory itself if the name is empty.
    fn lookup_at(&self, parent: u64, name: &[u8], when: PointInTime) -> Result<Option<Entry>, Errno> {
        let directory = self.replica.get(parent)?;
        let view = &self.reachable_history()?.view;
        let found = view.seq(when).and_then(|at| {
            let stored = match name {
                b"" => view.object(directory.id, at)?,
                name => match view.child(directory.id, name, at) {
                    // The entry had another name or parent at that time.
                    Err(Errno::NOENT) => view.object(self.replica.lookup(parent, name)?.id, at)?,
                    stored => stored?,
                },
            };
            Ok((stored, at))
        });
        match found {
            Ok((stored, at)) => Ok(Some(self.historic_entry(&historic_inode(&stored, at)))),
            Err(Errno::NOENT) => Ok(Some(Entry::absent(Expiry::NEVER_CACHED))),
            Err(errno) => Err(errno),
        }
    }

    /// Returns the dentries of a directory in name order, after a given name.
    pub(crate) fn page(&self, directory: u64, after: &[u8], limit: usize) -> Result<Vec<DirEntry>, Errno> {
        if !is_historic(NodeId(directory)) {
            return self.replica.list(directory, after, limit);
        }
        // A history entry has infinitely many names, so it lists none.
        if whose_history(NodeId(directory)).is_some() {
            return Ok(Vec::new());
        }
        let directory = self.inode(NodeId(directory))?;
        if !directory.is_directory() {
            return Err(Errno::NOTDIR);
        }
        let at = Seq(directory.generation);
        let found = self.reachable_history()?.view.list(directory.id, at, after, limit)?;
        Ok(found
            .into_iter()
            .map(|(name, stored)| DirEntry { inode: historic_inode(&stored, at), name })
            .collect())
    }

    pub(crate) fn open_historic(&self, num: NodeId, flags: u32) -> Result<Opened, Errno> {
        let flags = OFlags::from_bits_retain(flags);
        if flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC) {
            return Err(Errno::ROFS);
        }
        let inode = self.inode(num)?;
        if inode.kind != Kind::Regular {
            return Err(Errno::INVAL);
        }
        let (handle, _) = self.historic_files.add(self.historic_file(&inode)?);
        Ok(Opened::cached(handle).no_flush().zero_copy())
    }

    /// Returns an open historical file. One that was open in an earlier daemon is opened again.
    pub(crate) fn open_historic_file(
        &self,
        num: NodeId,
        handle: FileHandle,
    ) -> Result<Arc<HistoricFile>, Errno> {
        match self.historic_files.get(handle) {
            Err(Errno::BADF) if self.succession.is_some() => {
                let open = self.historic_file(&self.inode(num)?)?;
                Ok(self.historic_files.insert(handle, open))
            }
            open => open,
        }
    }

    fn historic_file(&self, inode: &Inode) -> Result<HistoricFile, Errno> {
        let stored = self.reachable_history()?.view.object(inode.id, Seq(inode.generation))?;
        let file = rustix::fs::open(
            self.replica.directory(),
            OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )?;
        let file = File::from(file);
        file.set_len(stored.object.content.size).map_err(errno)?;
        let data = Arc::new(file.try_clone().map_err(errno)?.into());
        Ok(HistoricFile { stored, data, file, present: Mutex::default() })
    }

    /// Ensures that a range of a historical file is present, and returns the file.
    pub(crate) fn fetch_historic(
        &self,
        open: &HistoricFile,
        range: Range<u64>,
    ) -> Result<Arc<OwnedFd>, Errno> {
        let content = &open.stored.object.content;
        let (mut at, end) = (range.start, range.end.min(content.size));
        let mut here = open.present.lock();
        while at < end {
            if let Some(there) = here.iter().find(|there| there.contains(&at)) {
                at = there.end;
                continue;
            }
            let next = here.iter().map(|there| there.start).filter(|start| *start > at).min();
            let requested = at..next.unwrap_or(end).min(end);
            let fetched = self.reachable_history()?.contents.fetch(
                open.stored.object.id,
                content,
                requested.clone(),
                &open.file,
            )?;
            if fetched.start > requested.start || fetched.end <= requested.start {
                return Err(Errno::IO);
            }
            // Merges the ranges that it touches: few remain after a sequential read.
            let mut all = fetched;
            here.retain(|there| {
                let apart = there.end < all.start || there.start > all.end;
                if !apart {
                    all = all.start.min(there.start)..all.end.max(there.end);
                }
                apart
            });
            here.push(all);
        }
        Ok(open.data.clone())
    }

    /// Returns the extended attributes of a historical inode.
    pub(crate) fn historic_xattrs(
        &self,
        num: NodeId,
    ) -> Result<std::collections::BTreeMap<Vec<u8>, Vec<u8>>, Errno> {
        let inode = self.inode(num)?;
        if !inode.xattrs {
            return Ok(Default::default());
        }
        Ok(self.reachable_history()?.view.object(inode.id, Seq(inode.generation))?.object.xattrs)
    }
}
