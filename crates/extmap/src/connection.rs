//! Connection to the kernel module: a block device, and files mapped to it. A process binds a device, creates files and pushes
//! their extents; for writable files it also replies to requests for blocks. Dropping the connection and all its files ends all
//! I/O on the device.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::calls::{self, Bind, RawExtent};

const CONTROL_PATH: &str = "/dev/shunt_extmap";

/// Reports whether the module is loaded.
pub fn is_available() -> bool {
    Path::new(CONTROL_PATH).exists()
}

/// A range of a file and its location on the device. All numbers are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file: a multiple of the connection's block size.
    pub offset: u64,
    /// Offset on the device: a multiple of the device's logical block size.
    pub device: u64,
    /// Length: a multiple of the connection's block size.
    pub length: u64,
    /// The device holds the content; an unwritten extent reads as zeros.
    pub written: bool,
}

/// A block device to which files can be mapped.
///
/// When this and all its [`MappedFile`]s are dropped, the kernel stops using the device at once, even if such files are still
/// open: reads from them fail with EIO from then on. The drop returns when no I/O is in flight any more.
#[derive(Debug)]
pub struct Connection {
    control: Arc<OwnedFd>,
    device_size: u64,
}

impl Connection {
    /// Connects to the module. Dirty pages in the page cache of the device are written out, because files are read past that
    /// cache.
    ///
    /// `block_size` is that of the files, in bytes: a power of two between the device's logical block size and the page size.
    ///
    /// # Errors
    /// ENOENT: the module is not loaded. EACCES: the caller is not root, or the device is not open for reading. ENOTBLK: not a
    /// block device. EINVAL: invalid block size. EPROTO: the module implements another protocol version.
    pub fn bind(device: impl AsFd, block_size: u32) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let control = rustix::fs::open(CONTROL_PATH, flags, Mode::empty())?;
        let device = device.as_fd().as_raw_fd();
        let mut bind =
            Bind { version: calls::PROTOCOL_VERSION, device, block_size, unused: 0, device_size: 0 };
        calls::bind(control.as_fd(), &mut bind)?;
        Ok(Self { control: Arc::new(control), device_size: bind.device_size })
    }

    /// Returns the size of the device in bytes.
    pub fn device_size(&self) -> u64 {
        self.device_size
    }

    /// Creates a file of `size` bytes that is one hole.
    ///
    /// # Errors
    /// EFBIG: no file can be that large. EMFILE: too many descriptors of this process, or files of this connection. ENOMEM.
    pub fn file(&self, size: u64) -> io::Result<MappedFile> {
        self.make(size, 0)
    }

    /// Like [`file`](Self::file), for a writable file: the module [requests](Self::next_request) blocks where it has none.
    ///
    /// # Errors
    /// The errors of `file`; EROFS: the device is not open for writing.
    pub fn writable_file(&self, size: u64) -> io::Result<MappedFile> {
        self.make(size, calls::WRITABLE)
    }

    fn make(&self, size: u64, flags: u32) -> io::Result<MappedFile> {
        let (file, cookie) = calls::new_file(self.control.as_fd(), size, flags)?;
        Ok(MappedFile { control: self.control.clone(), file, cookie })
    }

    /// Waits up to `timeout` for a request of the kernel.
    ///
    /// The thread that replies must not wait for memory that is freed by writing to these files (`PR_SET_IO_FLUSHER`), nor for
    /// a thread that waits for a reply.
    ///
    /// # Errors
    /// EINTR.
    pub fn next_request(&self, timeout: Duration) -> io::Result<Option<Request>> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        rustix::event::poll(&mut [PollFd::new(&self.control, PollFlags::IN)], Some(&timeout))?;
        let Some(raw) = calls::next_request(self.control.as_fd())? else { return Ok(None) };
        let upcall = match raw.kind {
            calls::ALLOCATE => Upcall::Allocate { offset: raw.offset, length: raw.length },
            calls::SYNC => Upcall::Sync,
            _ => {
                self.reply(raw.id, Err(Errno::NOSYS))?;
                return Ok(None);
            }
        };
        Ok(Some(Request { id: raw.id, file: raw.file, upcall }))
    }

    /// Replies to a request. Requested extents are [pushed](MappedFile::push) before the reply.
    ///
    /// # Errors
    /// ENOENT: the requester no longer waits.
    pub fn reply(&self, id: u64, done: Result<(), Errno>) -> io::Result<()> {
        calls::reply(self.control.as_fd(), id, done.map_or_else(|errno| -errno.raw_os_error(), |()| 0))
    }
}

/// A file mapped to a device.
#[derive(Debug)]
pub struct MappedFile {
    control: Arc<OwnedFd>,
    file: OwnedFd,
    cookie: u64,
}

/// State of a file when it was [settled](MappedFile::settle).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Ranges written for the first time since the last report, in bytes and whole blocks.
    pub ranges: Vec<Range<u64>>,
    /// Size of the file in bytes. No range begins behind it.
    pub size: u64,
    /// Number of other open descriptions and mappings of the file.
    pub users: u32,
}

/// A range taken out of a file's map, in which the kernel requests no blocks until this is dropped.
#[derive(Debug)]
pub struct BlockedRange<'a> {
    file: &'a MappedFile,
    /// Start of the range in the file, in bytes.
    pub from: u64,
}

impl Drop for BlockedRange<'_> {
    fn drop(&mut self) {
        // Releasing a held range cannot fail.
        let _ = calls::freed(self.file.control.as_fd(), self.file.file.as_fd());
    }
}

/// A request of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Number to pass to [`Connection::reply`].
    pub id: u64,
    /// The [cookie](MappedFile::cookie) of the file.
    pub file: u64,
    /// The operation requested.
    pub upcall: Upcall,
}

/// Operation requested by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upcall {
    /// Allocate blocks for a range, in bytes and whole blocks, that is about to be written.
    Allocate {
        /// Start of the range.
        offset: u64,
        /// Length of the range.
        length: u64,
    },
    /// Make written data durable: the file is to be [settled](MappedFile::settle).
    Sync,
}

impl MappedFile {
    /// Maps ranges that are not mapped yet, in any order.
    ///
    /// # Errors
    /// EINVAL: empty or not aligned. ENXIO: beyond the end of the device. EEXIST: overlaps another extent. E2BIG: too many
    /// extents of this file (1 Mi) or connection (module parameter `most_extents`). ENOMEM. Extents are pushed in batches of
    /// 4096; those before the failing batch are mapped.
    pub fn push(&self, extents: &[Extent]) -> io::Result<()> {
        let raw = |extent: &Extent| RawExtent {
            offset: extent.offset,
            device: extent.device,
            length: extent.length,
            flags: if extent.written { 0 } else { calls::UNWRITTEN },
            unused: 0,
        };
        extents.chunks(calls::MAX_PUSHED).try_for_each(|part| {
            let part: Vec<RawExtent> = part.iter().map(raw).collect();
            calls::push(self.control.as_fd(), self.file.as_fd(), &part)
        })
    }

    /// Returns the number that identifies the file in requests.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Truncates the file to `size`, and unmaps everything behind that. Nothing is written behind the new end any more when
    /// this returns: only then may blocks be freed.
    ///
    /// # Errors
    /// EFBIG, EROFS, EIO, ENOMEM.
    pub fn truncate(&self, size: u64) -> io::Result<()> {
        self.cut(0, (size, 0)).map(drop)
    }

    /// Makes a range read as zeros, and unmaps its whole blocks. As with [`truncate`](Self::truncate), these may be freed
    /// afterwards.
    ///
    /// # Errors
    /// EINVAL: empty. EROFS, EIO, ENOMEM.
    pub fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.cut(calls::CUT_RANGE, (offset, length)).map(drop)
    }

    fn cut(&self, flags: u32, range: (u64, u64)) -> io::Result<u64> {
        calls::cut(self.control.as_fd(), self.file.as_fd(), flags, range)
    }

    /// Like [`truncate`](Self::truncate). Until the returned value is dropped, the kernel requests no blocks behind the new end
    /// and accepts none there (EAGAIN), so that all of them can be freed.
    ///
    /// # Errors
    /// The errors of `truncate`; EBUSY: a range of the file is held already.
    pub fn truncate_held(&self, size: u64) -> io::Result<BlockedRange<'_>> {
        self.cut(calls::CUT_HOLD, (size, 0)).map(|from| BlockedRange { file: self, from })
    }

    /// Like [`punch`](Self::punch), with the range held as by [`truncate_held`](Self::truncate_held).
    ///
    /// # Errors
    /// The errors of `punch`; EBUSY: a range of the file is held already.
    pub fn punch_held(&self, offset: u64, length: u64) -> io::Result<BlockedRange<'_>> {
        self.cut(calls::CUT_RANGE | calls::CUT_HOLD, (offset, length))
            .map(|from| BlockedRange { file: self, from })
    }

    /// Extends the file to `size` if it is shorter. Its map stays.
    ///
    /// # Errors
    /// EFBIG, EROFS, EIO, ENOMEM.
    pub fn grow(&self, size: u64) -> io::Result<()> {
        self.cut(calls::CUT_GROW, (size, 0)).map(drop)
    }

    /// Unmaps the blocks behind the current end of the file, and holds that range.
    ///
    /// # Errors
    /// EROFS, ENOMEM; EBUSY: a range of the file is held already.
    pub fn cut_tail(&self) -> io::Result<BlockedRange<'_>> {
        self.cut(calls::CUT_TAIL | calls::CUT_HOLD, (0, 0)).map(|from| BlockedRange { file: self, from })
    }

    /// Flushes the file and the device cache. Returns the ranges that were written for the first time since the last call, and
    /// the file's size.
    ///
    /// # Errors
    /// EIO: some data may be lost.
    pub fn settle(&self) -> io::Result<Settled> {
        self.written_ranges(false)
    }

    /// Like [`settle`](Self::settle), for data that has already reached the device: writes nothing and does not flush the
    /// device cache.
    ///
    /// # Errors
    /// The errors of `settle`.
    pub fn settle_completed(&self) -> io::Result<Settled> {
        self.written_ranges(true)
    }

    fn written_ranges(&self, completed_only: bool) -> io::Result<Settled> {
        let mut written = Vec::new();
        loop {
            let found = calls::settle(self.control.as_fd(), self.file.as_fd(), completed_only, &mut written)?;
            if !found.more {
                let ranges = written.iter().map(|range| range.offset..range.offset + range.length);
                return Ok(Settled { ranges: ranges.collect(), size: found.size, users: found.users });
            }
        }
    }

    /// Returns the open file. No further extents can be mapped.
    pub fn into_fd(self) -> OwnedFd {
        self.file
    }
}

impl AsFd for MappedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
