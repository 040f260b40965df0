//! One file whose content the kernel writes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{SeekFrom, Timespec, Timestamps, UTIME_OMIT};
use shunt_ext4::{Error, Fallocate, Filesystem, Inode, ReservedAccess, Result, Time};
use shunt_extmap::{Extent, MappedFile, Settled};
use shunt_fuse::{Backing, Whence};

/// Bytes given ahead of a file that begins to grow, and of one that grew much.
const MIN_PREALLOCATION_BYTES: u64 = 64 << 10;
const MAX_PREALLOCATION_BYTES: u64 = 8 << 20;

const OMIT: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
/// A time of the module's files: that it did not happen.
const NEVER: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The file, and what of it is known here alone.
///
/// Who changes what blocks it has, and tells the kernel, holds the file's lock. Questions are answered without it, because
/// who holds it may wait for the kernel, and the kernel for the answer; `map` is held for as long as the engine's map and the
/// kernel's are about to be made alike, and never while waiting for the kernel to write.
#[derive(Debug)]
pub(super) struct File {
    pub(super) number: u32,
    pub(super) mapped: MappedFile,
    pub(super) backing: Backing,
    pub(super) rights: Mutex<ReservedAccess>,
    map: Mutex<Growth>,
    /// Ranges that the module told of and that are not entered yet. Each is told once.
    told: Mutex<Vec<Range<u64>>>,
    noting: Mutex<()>,
    /// Something may have been written since it was last settled.
    pub(super) unsettled: AtomicBool,
    /// It waits to be looked after.
    pub(super) queued: AtomicBool,
    /// The kernel forgot it.
    pub(super) forgotten: AtomicBool,
}

/// What a file got ahead of its end.
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
            told: Mutex::default(),
            noting: Mutex::default(),
            unsettled: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            forgotten: AtomicBool::new(false),
        }
    }

    /// The inode with what the kernel alone knows: how long the file is, and when it was written.
    pub(super) fn overlay(&self, inode: &mut Inode) {
        let Ok(found) = rustix::fs::fstat(&self.mapped) else { return };
        inode.size = found.st_size.cast_unsigned();
        if let Some(written) = written_at(&found) {
            inode.mtime = inode.mtime.max(written);
            inode.ctime = inode.ctime.max(written);
        }
    }

    /// Gives blocks to a range that somebody is about to write.
    pub(super) fn give(&self, fs: &Filesystem, range: Range<u64>) -> Result<()> {
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
        self.give_locked(fs, range, ahead)
    }

    /// The file's map is locked.
    fn give_locked(&self, fs: &Filesystem, range: Range<u64>, ahead: u64) -> Result<()> {
        let mut given = Vec::new();
        let result = fs.allocate_unwritten(self.number, range, ahead, *self.rights.lock(), &mut given);
        let extents: Vec<Extent> = given.iter().map(extent).collect();
        if !extents.is_empty()
            && let Err(error) = self.mapped.push(&extents)
        {
            // Cut off meanwhile, or no memory: nobody uses them.
            for extent in &extents {
                fs.take_back(self.number, extent.offset..extent.offset + extent.length, false)?;
            }
            return Err(error.into());
        }
        result
    }

    /// Enters what was written. With `write`, all that was written before is on the device when this returns; else what is
    /// there already. The file's lock is held.
    pub(super) fn settle(&self, fs: &Filesystem, write: bool) -> Result<Settled> {
        if write {
            // Before the question: what is written from now on is for the next time.
            self.unsettled.store(false, Ordering::Release);
        }
        let settled = if write { self.mapped.settle() } else { self.mapped.look() };
        let settled = settled.inspect_err(|_| self.unsettled.store(true, Ordering::Release))?;
        let changed = rustix::fs::fstat(&self.mapped).ok().as_ref().and_then(written_at);
        let mut told = self.told.lock();
        told.extend(settled.ranges.iter().cloned());
        fs.convert_unwritten(self.number, &told, settled.size, changed)
            .inspect_err(|_| self.unsettled.store(true, Ordering::Release))?;
        told.clear();
        Ok(settled)
    }

    /// Makes it end at `size`. The file's lock is held.
    pub(super) fn truncate(&self, fs: &Filesystem, size: u64) -> Result<()> {
        let held = self.mapped.truncate_held(size)?;
        let _map = self.map.lock();
        self.untell(size.next_multiple_of(fs.geometry().block_size.into())..u64::MAX);
        fs.truncate_mapped(self.number, size)?;
        drop(held);
        self.forget_written()?;
        // Zeros in the last block are to be written.
        self.unsettled.store(true, Ordering::Release);
        Ok(())
    }

    fn punch(&self, fs: &Filesystem, range: Range<u64>) -> Result<()> {
        let held = self.mapped.punch_held(range.start, range.end - range.start)?;
        let _map = self.map.lock();
        let block = u64::from(fs.geometry().block_size);
        self.untell(range.start.next_multiple_of(block)..range.end / block * block);
        fs.take_back(self.number, range, true)?;
        drop(held);
        self.unsettled.store(true, Ordering::Release);
        Ok(())
    }

    /// These blocks went: that they were written must not be entered for others.
    fn untell(&self, gone: Range<u64>) {
        if gone.is_empty() {
            return;
        }
        let mut told = self.told.lock();
        let outside = |range: Range<u64>| {
            [range.start..range.end.min(gone.start), range.start.max(gone.end)..range.end]
        };
        *told = told.drain(..).flat_map(outside).filter(|range| !range.is_empty()).collect();
    }

    /// Frees what the file got ahead of its end. The file's lock is held.
    pub(super) fn trim(&self, fs: &Filesystem) -> Result<()> {
        if !self.map.lock().tail {
            return Ok(());
        }
        let held = self.mapped.cut_tail()?;
        let mut growth = self.map.lock();
        fs.take_back(
            self.number,
            held.from..u64::from(u32::MAX) * u64::from(fs.geometry().block_size),
            false,
        )?;
        *growth = Growth::default();
        Ok(())
    }

    /// `fallocate(2)`. The file's lock is held.
    pub(super) fn fallocate(&self, fs: &Filesystem, what: Fallocate, offset: u64, length: u64) -> Result<()> {
        let end = offset.checked_add(length).filter(|_| length > 0).ok_or(Error::Invalid)?;
        let keeps = match what {
            Fallocate::Punch => return self.punch(fs, offset..end),
            Fallocate::Allocate => false,
            Fallocate::KeepSize => true,
            Fallocate::Zero { keep_size } => {
                self.punch(fs, offset..end)?;
                keep_size
            }
            Fallocate::Collapse | Fallocate::Insert => {
                return Err(Error::Unsupported("moving parts of a file that the kernel writes".into()));
            }
        };
        let block = u64::from(fs.geometry().block_size);
        let whole = offset / block * block..end.next_multiple_of(block);
        self.give_locked_alone(fs, whole)?;
        let size = rustix::fs::fstat(&self.mapped).map_err(std::io::Error::from)?.st_size.cast_unsigned();
        if !keeps && end > size {
            self.mapped.grow(end)?;
        }
        let now = Some(now());
        fs.convert_unwritten(self.number, &[], if keeps { size } else { size.max(end) }, now)
    }

    fn give_locked_alone(&self, fs: &Filesystem, range: Range<u64>) -> Result<()> {
        let _map = self.map.lock();
        self.give_locked(fs, range, 0)
    }

    /// Somebody said when it was last written: what the kernel noted before is of no more use.
    pub(super) fn forget_written(&self) -> Result<()> {
        let times = Timestamps { last_access: OMIT, last_modification: NEVER };
        Ok(rustix::fs::futimens(&self.mapped, &times).map_err(std::io::Error::from)?)
    }

    /// Tells `note` when the kernel last read it, if it did since this was last asked. One after the other: who is told
    /// nothing finds what was noted before.
    pub(super) fn noting<T>(&self, note: impl FnOnce(Option<Time>) -> T) -> T {
        let _noting = self.noting.lock();
        note(self.take_read())
    }

    fn take_read(&self) -> Option<Time> {
        let found = rustix::fs::fstat(&self.mapped).ok().filter(|found| found.st_atime != 0)?;
        let times = Timestamps { last_access: NEVER, last_modification: OMIT };
        rustix::fs::futimens(&self.mapped, &times).ok()?;
        Some(Time { seconds: found.st_atime, nanoseconds: found.st_atime_nsec as u32 })
    }

    /// Where there is data: what is only in the page cache is known to the kernel alone.
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

/// When the kernel last wrote it; never, since it was mapped or somebody set the time.
fn written_at(found: &rustix::fs::Stat) -> Option<Time> {
    let time = Time { seconds: found.st_mtime, nanoseconds: found.st_mtime_nsec as u32 };
    (time.seconds != 0).then_some(time)
}
