//! Reserves disk space for future commits, so that acknowledged changes can be committed.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// The space that is reserved for the growth of the log. It is more than [`MAX_BATCH_CHANGES`](crate::replica::db::group_commit::MAX_BATCH_CHANGES) take, wherever in the tree these are.
const WAL_RESERVE_BYTES: u64 = 16 << 20;

/// Space reserved for the growth of the WAL index: SQLite adds 32 KiB for each 4096 pages of the WAL.
const SHM_RESERVE_BYTES: u64 = 128 << 10;

/// A file next to the database. It stays open, because a close would release the locks that SQLite holds on it.
pub(crate) struct SidecarFile {
    path: PathBuf,
    file: Mutex<Option<Arc<File>>>,
}

impl SidecarFile {
    pub(crate) fn new(database: &Path, suffix: &str) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push(suffix);
        Self { path: path.into(), file: Mutex::new(None) }
    }

    pub(crate) fn file(&self) -> io::Result<Arc<File>> {
        let mut file = self.file.lock();
        Ok(match &*file {
            Some(file) => file.clone(),
            None => file.insert(Arc::new(File::options().read(true).write(true).open(&self.path)?)).clone(),
        })
    }

    /// Replaces the file. Returns the old one.
    #[cfg(test)]
    pub(crate) fn put(&self, file: File) -> File {
        let before = self.file().unwrap();
        *self.file.lock() = Some(Arc::new(file));
        before.try_clone().unwrap()
    }

    /// Reserves space behind the end of the file.
    fn preallocate(&self, room: u64) -> Result<(), Errno> {
        let Ok(file) = self.file() else { return Ok(()) };
        let Ok(about) = file.metadata() else { return Ok(()) };
        // Includes blocks behind the end, which are freed whenever the database truncates the file.
        match about.blocks().saturating_mul(512) >= about.len() + room / 2 {
            true => Ok(()),
            false => fallocate(&*file, FallocateFlags::KEEP_SIZE, about.len(), room),
        }
    }
}

/// Reserves space for the WAL and its index, and knows whether the disk is full.
pub(crate) struct WalReserve {
    index: SidecarFile,
    is_enabled: AtomicBool,
    is_full: AtomicBool,
}

impl WalReserve {
    pub(crate) fn new(database: &Path) -> Self {
        let index = SidecarFile::new(database, "-shm");
        Self { index, is_enabled: AtomicBool::new(false), is_full: AtomicBool::new(false) }
    }

    /// Starts to reserve space.
    pub(crate) fn enable(&self, log: &SidecarFile) {
        self.is_enabled.store(true, Ordering::Relaxed);
        self.replenish(log);
    }

    /// Reserves space for the next commits.
    pub(crate) fn replenish(&self, log: &SidecarFile) {
        if !self.is_enabled.load(Ordering::Relaxed) {
            return;
        }
        let reserved =
            log.preallocate(WAL_RESERVE_BYTES).and_then(|()| self.index.preallocate(SHM_RESERVE_BYTES));
        let is_full = matches!(reserved, Err(Errno::NOSPC | Errno::DQUOT));
        if is_full != self.is_full.swap(is_full, Ordering::Relaxed) {
            match is_full {
                true => tracing::error!("the cache disk is full: nothing can be created; free space on it"),
                false => tracing::info!("the cache disk has free space again"),
            }
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}
