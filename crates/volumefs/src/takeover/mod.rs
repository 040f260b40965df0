//! Takeover: continues the mount of a daemon that was killed. See [`shunt_fuse::takeover`].
//!
//! Node ids are the replica's inode numbers, which its database keeps, and the contents of files are in backing files. So these
//! are handed over besides what the framework keeps: the redo log of the replica, which has the changes of the last
//! milliseconds and the results of requests; the lock of the replica's directory; [`ServingMemory`]; and the backing files of
//! versions that were replaced while open.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::OFlags;
use shunt_fuse::guardian::HandOver;
use shunt_fuse::takeover::{Map, OpenRecord, Takeover};
use shunt_fuse::{Caches, Errno, FileHandle, Handle, NodeId, Request};
use shunt_volume::lease::SessionMemory;
use shunt_volume::replica::{self, RedoLog, Replica};

use crate::errseq::ErrSeq;
use crate::history::is_historic;
use crate::kernel_invalidator::Continued;
use crate::marks::Mark;
use crate::open_file::OpenFile;
use crate::readdir::OpenDirectory;
use crate::serving_memory::ServingMemory;
use crate::{VolumeFs, writable_mappings};

// Ids of stored descriptors. File handles are ids, too: they are at least 2^32.
const LOCK: u64 = 4;
const REDO: u64 = 5;
const SERVING: u64 = 6;

/// Interval at which unlinked inodes are looked for that the kernel forgot while no daemon served.
const FORGOTTEN_INTERVAL: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct RedoMap(Arc<Map>);

impl Deref for RedoMap {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// The state that a daemon leaves to the next one.
#[derive(Debug)]
pub struct Succession {
    redo: Arc<Map>,
    pub(crate) serving: ServingMemory,
    /// The lock of the last daemon's replica.
    lock: Option<Arc<OwnedFd>>,
    /// Backing files that the last daemon stored, by handle.
    stored: Mutex<BTreeMap<u64, OwnedFd>>,
}

impl Succession {
    /// Begins a new mount.
    ///
    /// # Errors
    /// No descriptor or no address space is available.
    pub fn begin() -> io::Result<Self> {
        let (redo, serving) = (Arc::new(Map::create(RedoLog::WORDS)?), ServingMemory::create()?);
        Ok(Self { redo, serving, lock: None, stored: Mutex::default() })
    }

    /// Takes what the last daemon left.
    ///
    /// # Errors
    /// Something is missing, or has another format.
    pub fn inherit(hand_over: &mut HandOver) -> io::Result<Self> {
        let mut stored: BTreeMap<u64, OwnedFd> = hand_over.take_all().into_iter().collect();
        let mut take = |id: u64| {
            let missing = || io::Error::new(io::ErrorKind::InvalidData, "the last daemon left no replica");
            stored.remove(&id).ok_or_else(missing)
        };
        let (lock, redo, serving) = (take(LOCK)?, take(REDO)?, take(SERVING)?);
        Ok(Self {
            redo: Arc::new(Map::open(redo, RedoLog::WORDS)?),
            serving: ServingMemory::open(serving)?,
            lock: Some(Arc::new(lock)),
            stored: Mutex::new(stored),
        })
    }

    /// Reports whether another daemon served the mount before this one.
    pub fn is_inherited(&self) -> bool {
        self.lock.is_some()
    }

    /// Returns the memory for the lease session of the mount.
    pub fn session_memory(&self) -> Arc<dyn SessionMemory> {
        Arc::new(self.serving.clone())
    }

    /// Sets the options with which the replica is opened.
    ///
    /// # Errors
    /// The redo log has another format.
    pub fn apply(&self, options: &mut replica::Options) -> Result<(), replica::RedoFormatError> {
        let memory = Box::new(RedoMap(self.redo.clone()));
        let log = if self.lock.is_some() { RedoLog::open(memory)? } else { RedoLog::create(memory)? };
        options.redo = Some(Arc::new(log));
        options.inherited_lock = self.lock.clone();
        Ok(())
    }
}

impl VolumeFs {
    /// Hands the mount over to another daemon if this one is killed. The replica was opened with the
    /// [options](Succession::apply) of `succession`.
    pub fn with_succession(mut self, succession: Succession) -> Self {
        self.set_memory(&succession.serving);
        self.succession = Some(succession);
        self
    }

    /// Sets what is done once the open files of the last daemon are adopted, and before any request is answered. From then on
    /// synchronisation may replace versions.
    pub fn once_adopted(self, action: impl FnOnce() + Send + 'static) -> Self {
        *self.adopted.lock() = Some(Box::new(action));
        self
    }

    /// Returns the result of a request that an earlier daemon executed without a reply: an inode number, or 0.
    pub(crate) fn earlier_result(&self, request: &Request<'_>) -> Option<u64> {
        let resent = request.is_resend().then(|| request.first_id())?;
        self.replica.earlier_result(resent)
    }

    /// Executes an operation of a request that must not be executed twice, unless an earlier daemon executed it: `again` gets its
    /// result then.
    pub(crate) fn once<T>(
        &self,
        request: &Request<'_>,
        operation: impl FnOnce(&Replica) -> Result<T, Errno>,
        again: impl FnOnce(u64) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match self.earlier_result(request) {
            Some(result) => again(result),
            None => self.replica.execute_for(request.first_id(), operation),
        }
    }

    /// Returns what the next daemon needs to continue with invalidations.
    pub(crate) fn continued(&self, session: &Handle) -> Option<Continued> {
        let serving = self.succession.as_ref()?.serving.clone();
        Some(Continued { session: session.clone(), serving, files: self.files.clone() })
    }

    /// Drops the stored backing file of an open that ends.
    pub(crate) fn drop_stored(&self, handle: FileHandle, open: &OpenFile) {
        if open.stored.load(Ordering::Relaxed)
            && let Some(takeover) = self.marks.takeover()
        {
            takeover.remove(handle.0);
        }
    }

    /// Called when a session starts or resumes.
    pub(crate) fn start_takeover(&self, session: &Handle) {
        let takeover = session.takeover();
        let (Some(succession), Some(takeover)) = (&self.succession, takeover) else {
            self.replica.disable_redo();
            return;
        };
        self.marks.start(session);
        if takeover.takeovers() == 0 {
            takeover.store(LOCK, self.replica.lock());
            takeover.store(REDO, succession.redo.as_fd());
            takeover.store(SERVING, succession.serving.as_fd());
            return;
        }
        let files = || takeover.files().iter();
        self.files.numbers().reserve(files().map(|record| record.handle), takeover.takeovers());
        let directories = takeover.directories();
        let handles = directories.iter().map(|record| record.handle);
        self.directories.numbers().reserve(handles, takeover.takeovers());
        for record in directories {
            let positions = succession.serving.positions(record.handle);
            self.directories.insert(record.handle, OpenDirectory::resumed(&self.replica, positions));
        }
        let mut stored = std::mem::take(&mut *succession.stored.lock());
        let live = || files().filter(|record| !is_historic(record.node));
        // Older versions first: versions are numbered in the order of the opens.
        let mut older: BTreeMap<u64, File> = BTreeMap::new();
        for record in live() {
            if let Some(file) = stored.remove(&record.handle.0).map(File::from)
                && !self.is_current(record.node.0, &file)
            {
                older.insert(record.handle.0, file);
            }
        }
        let mut lost = 0;
        let (older_opens, current): (Vec<_>, Vec<_>) =
            live().partition(|record| older.contains_key(&record.handle.0));
        for record in older_opens.into_iter().chain(current) {
            let adopted = self.adopt_file(record, older.remove(&record.handle.0));
            lost += u32::from(adopted.is_err());
        }
        if lost > 0 {
            tracing::warn!("cannot reopen {lost} open files after the takeover: their users get EBADF");
        }
        // Files that were closed meanwhile.
        stored.keys().for_each(|id| takeover.remove(*id));
        for mark in takeover.marks() {
            match Mark::decode(mark) {
                Some(Mark::Mapped(num)) => self.adopt_mapping(num, takeover, mark),
                Some(Mark::Removed { num, times }) => self.removed_dirs.restore(num, times),
                None => takeover.unmark(mark),
            }
        }
        self.repeat_invalidations(&succession.serving);
        self.replica.finish_adoption();
        let adopted = self.adopted.lock().take();
        adopted.into_iter().for_each(|action| action());
        let (replica, caches) = (Arc::downgrade(&self.replica), session.caches().clone());
        let started = std::thread::Builder::new()
            .name("forgotten".into())
            .spawn(move || drop_forgotten(&replica, &caches));
        if let Err(error) = started {
            tracing::warn!("cannot start a thread: {error}; the space of deleted files may be freed late");
        }
    }

    /// Reports whether a file is the backing file of the current version of an inode.
    fn is_current(&self, num: u64, file: &File) -> bool {
        let same = |path: std::path::PathBuf| {
            let (one, other) = (file.metadata().ok()?, std::fs::metadata(path).ok()?);
            Some((one.dev(), one.ino()) == (other.dev(), other.ino()))
        };
        same(self.replica.backing_path(num)).unwrap_or_default()
    }

    fn adopt_file(&self, record: &OpenRecord, older: Option<File>) -> Result<(), Errno> {
        let (num, flags) = (record.node.0, OFlags::from_bits_retain(record.flags));
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        let maps = flags & OFlags::RWMODE == OFlags::RDWR;
        let is_older = older.is_some();
        let opened = match older {
            Some(file) => self.replica.adopt_older(file),
            None => self.replica.adopt_open(num, writes)?,
        };
        self.versions.add(num, opened.session);
        if maps {
            self.mappings.opened(num);
            if record.is_passed_through() {
                self.replica.mark_mapped(num, opened.session);
            }
        }
        let open = OpenFile {
            num,
            writes,
            maps_writable: maps,
            opened,
            data: OnceLock::new(),
            present: Mutex::default(),
            buffered: AtomicBool::new(record.is_cached()),
            size_epoch: AtomicU64::new(0),
            published: Mutex::default(),
            errseq: ErrSeq::new(&self.replica),
            stored: AtomicBool::new(is_older),
        };
        self.files.insert(record.handle, open);
        Ok(())
    }

    /// Continues to wait for the end of a mapping whose file is closed.
    fn adopt_mapping(&self, num: u64, takeover: &Takeover, mark: u64) {
        match self.replica.adopt_open(num, true) {
            Ok(opened) => {
                self.replica.mark_mapped(num, opened.session);
                self.mappings.opened(num);
                self.mappings.defer(writable_mappings::Closed {
                    num,
                    session: opened.session,
                    maps_writable: true,
                    leases: self.leases.clone(),
                });
            }
            Err(_) => takeover.unmark(mark),
        }
    }

    /// Sends invalidations again that the kernel may not have processed.
    fn repeat_invalidations(&self, serving: &ServingMemory) {
        let pending = serving.pending_invalidations();
        let until = serving.next_invalidation();
        match pending {
            Some(pending) => {
                if pending.iter().any(|(_, is_name)| *is_name) {
                    self.replica.expire_names();
                }
                let mut nodes: Vec<u64> = pending.into_iter().map(|(num, _)| num).collect();
                nodes.sort_unstable();
                nodes.dedup();
                nodes.into_iter().for_each(|num| self.replica.invalidate_content(num));
            }
            None => {
                self.replica.expire_names();
                self.replica.invalidate_all_contents();
            }
        }
        serving.invalidated_until(until);
    }
}

/// Removes unlinked inodes that the kernel forgot without any daemon noticing, until the replica is closed.
fn drop_forgotten(replica: &Weak<Replica>, caches: &Caches) {
    let mut candidates = Vec::new();
    loop {
        match replica.upgrade() {
            Some(replica) => candidates.extend(replica.doubtful_unlinked()),
            None => return,
        }
        for num in candidates.drain(..) {
            // The kernel reports whether it knows an inode only where it is to return data.
            let known = caches.retrieve(NodeId(num), 0, 1).wait();
            let Some(replica) = replica.upgrade().filter(|_| known == Err(Errno::NOENT)) else { continue };
            if replica.doubtful_unlinked().contains(&num) {
                replica.remove_lookups(num, u64::MAX);
            }
        }
        std::thread::sleep(FORGOTTEN_INTERVAL);
    }
}
