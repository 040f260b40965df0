//! A file whose content the kernel reads and writes directly on the device. The engine's extent tree and the module's block map
//! are kept consistent: blocks are allocated as unwritten extents, and converted once the module has reported them as written.
//! Until then the size and the times of the module's file are ahead of those in the image.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{SeekFrom, Timespec, Timestamps, UTIME_OMIT};
use shunt_ext4::{Error, Fallocate, Filesystem, Inode, ReservedAccess, Result, Time};
use shunt_extmap::{Extent, MappedFile, Settled};
use shunt_fuse::{Backing, Whence};

/// Bytes preallocated behind the end of a file that begins to grow, and of one that has grown much.
const MIN_PREALLOCATION_BYTES: u64 = 64 << 10;
const MAX_PREALLOCATION_BYTES: u64 = 8 << 20;

const OMIT: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
/// Stands for "no access" and "no modification" in the times of the module's files.
const NEVER: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A mapped file, and its state that is not yet in the image.
///
/// A thread that changes the block map and pushes it to the kernel holds the file's lock. Upcalls are answered without that
/// lock, because its holder may wait for the kernel, and the kernel for the reply. `map` is held while the maps of the engine
/// and of the kernel are made consistent, and never while waiting for the kernel to write.
#[derive(Debug)]
pub(super) struct File {
    pub(super) number: u32,
    pub(super) mapped: MappedFile,
    pub(super) backing: Backing,
    pub(super) rights: Mutex<ReservedAccess>,
    map: Mutex<Growth>,
    /// Ranges that the module reported as written and that are not yet converted in the image. The module reports each once.
    written_ranges: Mutex<Vec<Range<u64>>>,
    read_time_lock: Mutex<()>,
    /// The kernel may have written data since the last [`settle`](Self::settle).
    pub(super) unsettled: AtomicBool,
    /// The file is in the queue of the background worker.
    pub(super) queued: AtomicBool,
    /// The kernel forgot the inode.
    pub(super) forgotten: AtomicBool,
}

/// Preallocation behind the end of a file.
#[derive(Debug, Default)]
struct Growth {
    ahead: u64,
    /// There may be blocks behind the end.
    tail: bool,
}

pub(super) fn extent(extent: &shunt_ext4::Extent) -> Extent {
    let shunt_ext4::Extent { offset, device, length, written } = *extent;
    Extent { offset, device, length, written }
}

impl File {
    pub(super) fn new(number: u32, mapped: MappedFile, backing: Backing, rights: ReservedAccess) -> Self {
        Self {
            number,
            mapped,
            backing,
            rights: Mutex::new(rights),
            map: Mutex::default(),
            written_ranges: Mutex::default(),
            read_time_lock: Mutex::default(),
            unsettled: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            forgotten: AtomicBool::new(false),
        }
    }

    /// Overlays the state that only the kernel has: the size and the time of the last write.
    pub(super) fn overlay(&self, inode: &mut Inode) {
        let Ok(found) = rustix::fs::fstat(&self.mapped) else { return };
        inode.size = found.st_size.cast_unsigned();
        if let Some(written) = written_at(&found) {
            inode.mtime = inode.mtime.max(written);
            inode.ctime = inode.ctime.max(written);
        }
    }

    /// Allocates blocks for a range that is about to be written.
    pub(super) fn allocate(&self, fs: &Filesystem, range: Range<u64>) -> Result<()> {
        let mut growth = self.map.lock();
        self.unsettled.store(true, Ordering::Release);
        let block = u64::from(fs.geometry().block_size);
        let size = rustix::fs::fstat(&self.mapped).map_or(0, |found| found.st_size.cast_unsigned());
        let ahead = if range.end > size.next_multiple_of(block) {
            growth.ahead = (growth.ahead * 2).clamp(MIN_PREALLOCATION_BYTES, MAX_PREALLOCATION_BYTES);
            growth.tail = true;
            growth.ahead
        } else {
            0
        };
        self.allocate_locked(fs, range, ahead)
    }

    /// Allocates blocks. `map` is locked by the caller.
    fn allocate_locked(&self, fs: &Filesystem, range: Range<u64>, ahead: u64) -> Result<()> {
        let mut allocated = Vec::new();
        let result = fs.allocate_unwritten(self.number, range, ahead, *self.rights.lock(), &mut allocated);
        let extents: Vec<Extent> = allocated.iter().map(extent).collect();
        if !extents.is_empty()
            && let Err(error) = self.mapped.push(&extents)
        {
            // The range was truncated in between, or memory is short: nothing uses these blocks.
            for extent in &extents {
                fs.free_range(self.number, extent.offset..extent.offset + extent.length, false)?;
            }
            return Err(error.into());
        }
        result
    }

    /// Records written ranges in the image. With `write`, all earlier writes are on the device on return; otherwise only ranges
    /// that reached the device already are recorded. The caller holds the file's lock.
    pub(super) fn settle(&self, fs: &Filesystem, write: bool) -> Result<Settled> {
        if write {
            // Cleared before the call, so that later writes count for the next one.
            self.unsettled.store(false, Ordering::Release);
        }
        let settled = if write { self.mapped.settle() } else { self.mapped.settle_completed() };
        let settled = settled.inspect_err(|_| self.unsettled.store(true, Ordering::Release))?;
        let changed = rustix::fs::fstat(&self.mapped).ok().as_ref().and_then(written_at);
        let mut written_ranges = self.written_ranges.lock();
        written_ranges.extend(settled.ranges.iter().cloned());
        fs.convert_unwritten(self.number, &written_ranges, settled.size, changed)
            .inspect_err(|_| self.unsettled.store(true, Ordering::Release))?;
        written_ranges.clear();
        Ok(settled)
    }

    /// Truncates the file to `size`. The caller holds the file's lock.
    pub(super) fn truncate(&self, fs: &Filesystem, size: u64) -> Result<()> {
        let blocked = self.mapped.truncate_held(size)?;
        let _map = self.map.lock();
        self.drop_conversions(size.next_multiple_of(fs.geometry().block_size.into())..u64::MAX);
        fs.truncate_mapped(self.number, size)?;
        drop(blocked);
        self.forget_written()?;
        // The zeroed part of the last block has to be written.
        self.unsettled.store(true, Ordering::Release);
        Ok(())
    }

    fn punch(&self, fs: &Filesystem, range: Range<u64>) -> Result<()> {
        let blocked = self.mapped.punch_held(range.start, range.end - range.start)?;
        let _map = self.map.lock();
        let block = u64::from(fs.geometry().block_size);
        self.drop_conversions(range.start.next_multiple_of(block)..range.end / block * block);
        fs.free_range(self.number, range, true)?;
        drop(blocked);
        self.unsettled.store(true, Ordering::Release);
        Ok(())
    }

    /// Drops pending conversions of freed blocks, which may belong to another file by the time they would be recorded.
    fn drop_conversions(&self, freed: Range<u64>) {
        if freed.is_empty() {
            return;
        }
        let mut written_ranges = self.written_ranges.lock();
        let outside = |range: Range<u64>| {
            [range.start..range.end.min(freed.start), range.start.max(freed.end)..range.end]
        };
        *written_ranges =
            written_ranges.drain(..).flat_map(outside).filter(|range| !range.is_empty()).collect();
    }

    /// Frees the blocks that were preallocated behind the end. The caller holds the file's lock.
    pub(super) fn trim(&self, fs: &Filesystem) -> Result<()> {
        if !self.map.lock().tail {
            return Ok(());
        }
        let blocked = self.mapped.cut_tail()?;
        let mut growth = self.map.lock();
        fs.free_range(
            self.number,
            blocked.from..u64::from(u32::MAX) * u64::from(fs.geometry().block_size),
            false,
        )?;
        *growth = Growth::default();
        Ok(())
    }

    /// Implements `fallocate(2)`. The caller holds the file's lock.
    pub(super) fn fallocate(&self, fs: &Filesystem, mode: Fallocate, offset: u64, length: u64) -> Result<()> {
        let end = offset.checked_add(length).filter(|_| length > 0).ok_or(Error::Invalid)?;
        let keeps = match mode {
            Fallocate::Punch => return self.punch(fs, offset..end),
            Fallocate::Allocate => false,
            Fallocate::KeepSize => true,
            Fallocate::Zero { keep_size } => {
                self.punch(fs, offset..end)?;
                keep_size
            }
            Fallocate::Collapse | Fallocate::Insert => {
                return Err(Error::Unsupported(
                    "collapse or insert range in a file that the kernel writes directly".into(),
                ));
            }
        };
        let block = u64::from(fs.geometry().block_size);
        let whole = offset / block * block..end.next_multiple_of(block);
        self.lock_and_allocate(fs, whole)?;
        let size = rustix::fs::fstat(&self.mapped).map_err(std::io::Error::from)?.st_size.cast_unsigned();
        if !keeps && end > size {
            self.mapped.grow(end)?;
        }
        let now = Some(now());
        fs.convert_unwritten(self.number, &[], if keeps { size } else { size.max(end) }, now)
    }

    fn lock_and_allocate(&self, fs: &Filesystem, range: Range<u64>) -> Result<()> {
        let _map = self.map.lock();
        self.allocate_locked(fs, range, 0)
    }

    /// Discards the kernel's time of the last write, after the mtime was set explicitly.
    pub(super) fn forget_written(&self) -> Result<()> {
        let times = Timestamps { last_access: OMIT, last_modification: NEVER };
        Ok(rustix::fs::futimens(&self.mapped, &times).map_err(std::io::Error::from)?)
    }

    /// Passes `record` the time of the kernel's last read since the previous call, if any. Calls are serialized: a caller that
    /// gets `None` finds the earlier one recorded.
    pub(super) fn with_read_time<T>(&self, record: impl FnOnce(Option<Time>) -> T) -> T {
        let _lock = self.read_time_lock.lock();
        record(self.take_read())
    }

    fn take_read(&self) -> Option<Time> {
        let found = rustix::fs::fstat(&self.mapped).ok().filter(|found| found.st_atime != 0)?;
        let times = Timestamps { last_access: NEVER, last_modification: OMIT };
        rustix::fs::futimens(&self.mapped, &times).ok()?;
        Some(Time { seconds: found.st_atime, nanoseconds: found.st_atime_nsec as u32 })
    }

    /// Seeks to data or a hole. Only the kernel knows the data that is in the page cache.
    pub(super) fn seek(&self, offset: u64, whence: Whence) -> rustix::io::Result<u64> {
        let from = match whence {
            Whence::Data => SeekFrom::Data(offset),
            Whence::Hole => SeekFrom::Hole(offset),
        };
        rustix::fs::seek(&self.mapped, from)
    }
}

fn now() -> Time {
    crate::setattr::time(shunt_fuse::Timestamp::now())
}

/// Returns the time of the kernel's last write; `None` if there was none since the file was mapped or its time set.
fn written_at(found: &rustix::fs::Stat) -> Option<Time> {
    let time = Time { seconds: found.st_mtime, nanoseconds: found.st_mtime_nsec as u32 };
    (time.seconds != 0).then_some(time)
}
