//! Write passthrough: the kernel reads and writes mapped files directly on the device. The daemon allocates blocks on request,
//! and records written ranges in the journal.
//!
//! A file stays mapped from its first open until the kernel has forgotten it and all of it is on the device, because the last
//! close of the module's file would drop dirty pages. While it is mapped, all requests for its content go to the module's file.
//!
//! Lock order: the file's lock, its map, the engine's locks. Threads that answer upcalls take only the last two.

mod background_worker;
mod file;
mod locks;
mod upcalls;

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use parking_lot::Mutex;
use shunt_ext4::{Fallocate, Filesystem, Inode, ReservedAccess, Result, Time};
use shunt_extmap::{Connection, Extent};
use shunt_fuse::{Backing, Passthrough, Whence};

use crate::reaper::Reaper;
use background_worker::BackgroundWorker;
use file::File;
use locks::Locks;

/// Maximum number of extents of a file at open. A file with more goes through the daemon.
const MAX_EXTENTS: usize = 1 << 18;

/// Maximum number of files that stay mapped while they are not open.
const MAX_MAPPED_FILES: usize = 1024;

/// The mapped files and the threads that serve them.
#[derive(Debug)]
pub(crate) struct DirectWrites {
    files: Arc<Files>,
    background: BackgroundWorker,
    upcall_threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

struct Files {
    connection: Connection,
    filesystem: Arc<Filesystem>,
    reaper: Arc<Reaper>,
    locks: Locks,
    table: Mutex<Table>,
    ended: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    numbers: HashMap<u32, Arc<File>>,
    cookies: HashMap<u64, Weak<File>>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("connection", &self.connection).finish_non_exhaustive()
    }
}

impl Files {
    fn find(&self, number: u32) -> Option<Arc<File>> {
        self.table.lock().numbers.get(&number).cloned()
    }

    fn by_cookie(&self, cookie: u64) -> Option<Arc<File>> {
        self.table.lock().cookies.get(&cookie).and_then(Weak::upgrade)
    }

    fn all(&self) -> Vec<Arc<File>> {
        self.table.lock().numbers.values().cloned().collect()
    }

    /// Removes a file from the table. The caller holds its lock.
    fn remove(&self, number: u32) -> Option<Arc<File>> {
        let mut table = self.table.lock();
        let file = table.numbers.remove(&number)?;
        table.cookies.remove(&file.mapped.cookie());
        Some(file)
    }

    fn settle(&self, number: u32, write: bool) -> Result<()> {
        let _lock = self.locks.lock(number);
        match self.find(number) {
            Some(file) => file.settle(&self.filesystem, write).map(drop),
            None => Ok(()),
        }
    }

    /// Unmaps an inode that is about to be freed.
    fn unmap_freed(&self, number: u32) {
        let _lock = self.locks.lock(number);
        // The kernel may close it later than the daemon. After this, it has nothing left to write.
        if let Some(file) = self.remove(number)
            && let Err(error) = file.mapped.truncate(0)
        {
            tracing::warn!("cannot unmap freed inode {number} in the kernel: {error}");
        }
    }
}

impl DirectWrites {
    pub(crate) fn start(
        connection: Connection,
        filesystem: Arc<Filesystem>,
        reaper: &Arc<Reaper>,
    ) -> std::io::Result<Self> {
        let files = Arc::new(Files {
            connection,
            filesystem,
            reaper: reaper.clone(),
            locks: Locks::default(),
            table: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&files);
        reaper.before_each(Box::new(move |number| {
            if let Some(files) = weak.upgrade() {
                files.unmap_freed(number);
            }
        }));
        let background = BackgroundWorker::start(files.clone())?;
        let upcall_threads = Mutex::new(upcalls::start(&files)?);
        Ok(Self { files, background, upcall_threads })
    }

    /// Returns the backing file for passthrough, mapping the file at its first open. `None` where it cannot be mapped.
    pub(crate) fn open(
        &self,
        passthrough: &Passthrough,
        number: u32,
        rights: ReservedAccess,
    ) -> Option<Backing> {
        let _lock = self.files.locks.lock(number);
        if let Some(file) = self.files.find(number) {
            if rights == ReservedAccess::Reserved {
                *file.rights.lock() = rights;
            }
            return Some(file.backing.clone());
        }
        let refused = |error: &dyn std::fmt::Display| tracing::debug!(inode = number, %error, "extents not passed to the kernel");
        let fs = &self.files.filesystem;
        let inode = fs.inode(number).ok().filter(|inode| fs.is_mappable(inode))?;
        let extents = fs.all_extents(&inode, MAX_EXTENTS).ok()??;
        let mapped = self.files.connection.writable_file(inode.size).map_err(|error| refused(&error)).ok()?;
        let extents: Vec<Extent> = extents.iter().flat_map(|extent| parts(extent, fs)).collect();
        mapped.push(&extents).map_err(|error| refused(&error)).ok()?;
        let backing = passthrough.share(crate::reply::node(number), mapped.as_fd());
        let backing = backing.map_err(|errno| refused(&errno)).ok()?;
        let file = Arc::new(File::new(number, mapped, backing.clone(), rights));
        let count = {
            let mut table = self.files.table.lock();
            table.cookies.insert(file.mapped.cookie(), Arc::downgrade(&file));
            table.numbers.insert(number, file);
            table.numbers.len()
        };
        if count > MAX_MAPPED_FILES {
            self.background.shrink();
        }
        Some(backing)
    }

    pub(crate) fn overlay(&self, inode: &mut Inode) {
        if let Some(file) = self.files.find(inode.number) {
            file.overlay(inode);
        }
    }

    pub(crate) fn seek(&self, number: u32, offset: u64, whence: Whence) -> Option<rustix::io::Result<u64>> {
        self.files.find(number).map(|file| file.seek(offset, whence))
    }

    /// Writes for a handle without passthrough; `None` if the file is not mapped.
    pub(crate) fn write(&self, number: u32, offset: u64, data: &[u8]) -> Option<rustix::io::Result<usize>> {
        self.files.find(number).map(|file| rustix::io::pwrite(&file.mapped, data, offset))
    }

    /// Reads for a handle without passthrough; `None` if the file is not mapped.
    pub(crate) fn read(&self, number: u32, offset: u64, size: u32) -> Option<rustix::io::Result<Vec<u8>>> {
        let file = self.files.find(number)?;
        let mut content = vec![0; size as usize];
        Some(rustix::io::pread(&file.mapped, &mut content[..], offset).map(|count| {
            content.truncate(count);
            content
        }))
    }

    /// Truncates a file, through its mapping if it has one.
    pub(crate) fn truncate(&self, number: u32, size: u64) -> Result<()> {
        let _lock = self.files.locks.lock(number);
        match self.files.find(number) {
            Some(file) => file.truncate(&self.files.filesystem, size),
            None => self.files.filesystem.truncate(number, size),
        }
    }

    pub(crate) fn fallocate(
        &self,
        number: u32,
        mode: Fallocate,
        (offset, length): (u64, u64),
        rights: ReservedAccess,
    ) -> Result<()> {
        let _lock = self.files.locks.lock(number);
        let fs = &self.files.filesystem;
        match self.files.find(number) {
            Some(file) => file.fallocate(fs, mode, offset, length),
            None => fs.fallocate_as(number, mode, (offset, length), rights),
        }
    }

    /// Runs an operation of the engine on a file that is not mapped, with the file's lock held.
    pub(crate) fn unmapped<T>(&self, number: u32, run: impl FnOnce() -> T) -> T {
        let _lock = self.files.locks.lock(number);
        run()
    }

    /// Passes `record` the time of the kernel's last direct read since the previous call, if any. Returns `None` if the file is
    /// not mapped.
    pub(crate) fn with_read_time<T>(&self, number: u32, record: impl FnOnce(Option<Time>) -> T) -> Option<T> {
        Some(self.files.find(number)?.with_read_time(record))
    }

    /// Discards the kernel's time of the last write, after the mtime was set explicitly.
    pub(crate) fn time_was_set(&self, number: u32) -> Result<()> {
        self.files.find(number).map_or(Ok(()), |file| file.forget_written())
    }

    pub(crate) fn settle(&self, number: u32) -> Result<()> {
        self.files.settle(number, true)
    }

    pub(crate) fn settle_all(&self) -> Result<()> {
        let files = self.files.all();
        files.iter().try_for_each(|file| self.files.settle(file.number, true))
    }

    /// Queues a file after a close.
    pub(crate) fn closed(&self, number: u32) {
        if let Some(file) = self.files.find(number) {
            self.background.queue_file(&file);
        }
    }

    pub(crate) fn forgotten(&self, number: u32) {
        if let Some(file) = self.files.find(number) {
            file.forgotten.store(true, Ordering::Release);
            self.background.queue_file(&file);
        }
    }

    /// Records all written ranges. There are no writers any more.
    pub(crate) fn finish(&self) {
        self.background.end();
        for file in self.files.all() {
            let _lock = self.files.locks.lock(file.number);
            let settled = file.settle(&self.files.filesystem, true).map(drop);
            match settled.and_then(|()| file.trim(&self.files.filesystem)) {
                // The inode has no name and is about to be freed.
                Ok(()) | Err(shunt_ext4::Error::NotFound) => {}
                Err(error) => {
                    tracing::error!(
                        "cannot record the blocks written to inode {}: {}; its recent writes may be lost",
                        file.number,
                        error.cause()
                    )
                }
            }
        }
    }

    /// Ends the upcall threads and unmaps all files.
    pub(crate) fn end(&self) {
        self.files.ended.store(true, Ordering::Release);
        let threads = std::mem::take(&mut *self.upcall_threads.lock());
        for thread in threads {
            let _ = thread.join();
        }
        let table = std::mem::take(&mut *self.files.table.lock());
        // Unmapping files takes system calls, so it happens outside the lock.
        drop(table);
    }
}

/// Splits an extent into parts that the module accepts.
fn parts(extent: &shunt_ext4::Extent, fs: &Filesystem) -> impl Iterator<Item = Extent> + use<> {
    const MAX_UNWRITTEN_BLOCKS: u64 = 32768;
    let whole = file::extent(extent);
    let limit = match whole.written {
        true => whole.length,
        false => MAX_UNWRITTEN_BLOCKS * u64::from(fs.geometry().block_size),
    };
    let starts = (0..whole.length).step_by(limit.max(1) as usize);
    starts.map(move |at| Extent {
        offset: whole.offset + at,
        device: whole.device + at,
        length: limit.min(whole.length - at),
        ..whole
    })
}
