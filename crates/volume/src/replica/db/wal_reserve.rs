//! Room on the disk for commits that are to come: what is answered can be committed then.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// What the log is to grow by. More than [`MAX_BATCH_CHANGES`](crate::replica::db::group_commit::MAX_BATCH_CHANGES) take, wherever in the tree they are.
const WAL_RESERVE_BYTES: u64 = 16 << 20;

/// What its index is to grow by: SQLite adds 32 KiB for each 4096 pages of the log.
const SHM_RESERVE_BYTES: u64 = 128 << 10;

/// A file beside the database. Once open it stays so: a close would end the locks that SQLite holds on it.
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

    /// Another one in its place; the one before.
    #[cfg(test)]
    pub(crate) fn put(&self, file: File) -> File {
        let before = self.file().unwrap();
        *self.file.lock() = Some(Arc::new(file));
        before.try_clone().unwrap()
    }

    /// Has the disk keep so much behind its end.
    fn preallocate(&self, room: u64) -> Result<(), Errno> {
        let Ok(file) = self.file() else { return Ok(()) };
        let Ok(about) = file.metadata() else { return Ok(()) };
        // With what is behind its end, which goes whenever the database cuts it off.
        match about.blocks().saturating_mul(512) >= about.len() + room / 2 {
            true => Ok(()),
            false => fallocate(&*file, FallocateFlags::KEEP_SIZE, about.len(), room),
        }
    }
}

/// Whether there is room, and to be any.
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

    /// From now on the disk keeps room.
    pub(crate) fn enable(&self, log: &SidecarFile) {
        self.is_enabled.store(true, Ordering::Relaxed);
        self.replenish(log);
    }

    /// Has the disk keep room for the next commits.
    pub(crate) fn replenish(&self, log: &SidecarFile) {
        if !self.is_enabled.load(Ordering::Relaxed) {
            return;
        }
        let kept =
            log.preallocate(WAL_RESERVE_BYTES).and_then(|()| self.index.preallocate(SHM_RESERVE_BYTES));
        let is_full = matches!(kept, Err(Errno::NOSPC | Errno::DQUOT));
        if is_full != self.is_full.swap(is_full, Ordering::Relaxed) {
            match is_full {
                true => tracing::error!("the disk of the cache is full: nothing new can be made"),
                false => tracing::info!("the disk of the cache has room again"),
            }
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}
