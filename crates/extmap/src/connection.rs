//! A block device, and files mapped to it.

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

const CONTROL: &str = "/dev/shunt_extmap";

/// Whether the module is loaded.
pub fn is_available() -> bool {
    Path::new(CONTROL).exists()
}

/// A stretch of a file. All numbers are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in the file: a multiple of the connection's block size.
    pub offset: u64,
    /// Where it begins on the device: a multiple of the device's own block size.
    pub device: u64,
    /// How long it is: a multiple of the connection's block size.
    pub length: u64,
    /// The device has its content; else it reads as zeros.
    pub written: bool,
}

/// A block device of which files can be made.
///
/// When this and all its [`MappedFile`]s are dropped the kernel stops using the device at once, whoever has such files
/// open: to read from them fails with EIO from then on. The drop returns when nothing is under way any more.
#[derive(Debug)]
pub struct Connection {
    control: Arc<OwnedFd>,
    device_size: u64,
}

impl Connection {
    /// Connects to the module. Content of the device that is in its page cache and not yet written is written out, for
    /// files are read past that cache.
    ///
    /// `block_size` is that of files, in bytes: a power of two from the device's own block size to a page.
    ///
    /// # Errors
    /// ENOENT: the module is not loaded. EACCES: not root, or the device is not open for reading. ENOTBLK: it is none.
    /// EINVAL: the block size. EPROTO: the module speaks another version of this.
    pub fn bind(device: impl AsFd, block_size: u32) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let control = rustix::fs::open(CONTROL, flags, Mode::empty())?;
        let device = device.as_fd().as_raw_fd();
        let mut bind = Bind { version: calls::VERSION, device, block_size, unused: 0, device_size: 0 };
        calls::bind(control.as_fd(), &mut bind)?;
        Ok(Self { control: Arc::new(control), device_size: bind.device_size })
    }

    /// Bytes of the device.
    pub fn device_size(&self) -> u64 {
        self.device_size
    }

    /// A file of `size` bytes, all of them a hole.
    ///
    /// # Errors
    /// EFBIG: no file can be as large. EMFILE: too many descriptors of this process, or files of this connection. ENOMEM.
    pub fn file(&self, size: u64) -> io::Result<MappedFile> {
        self.make(size, 0)
    }

    /// As [`file`](Self::file), to be written as well: where it has no blocks they are [asked](Self::next_request) for.
    ///
    /// # Errors
    /// As `file`; EROFS: the device is not open for writing.
    pub fn writable_file(&self, size: u64) -> io::Result<MappedFile> {
        self.make(size, calls::WRITABLE)
    }

    fn make(&self, size: u64, flags: u32) -> io::Result<MappedFile> {
        let (file, cookie) = calls::new_file(self.control.as_fd(), size, flags)?;
        Ok(MappedFile { control: self.control.clone(), file, cookie })
    }

    /// What the kernel asks for, waited for so long.
    ///
    /// Whoever answers must not wait for memory that is freed by writing to these files
    /// (`PR_SET_IO_FLUSHER`), nor for anybody who waits for an answer.
    ///
    /// # Errors
    /// EINTR.
    pub fn next_request(&self, patience: Duration) -> io::Result<Option<Request>> {
        let patience =
            Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        rustix::event::poll(&mut [PollFd::new(&self.control, PollFlags::IN)], Some(&patience))?;
        let Some(raw) = calls::next_request(self.control.as_fd())? else { return Ok(None) };
        let ask = match raw.kind {
            calls::ALLOCATE => Ask::Allocate { offset: raw.offset, length: raw.length },
            calls::SYNC => Ask::Sync,
            _ => {
                self.reply(raw.id, Err(Errno::NOSYS))?;
                return Ok(None);
            }
        };
        Ok(Some(Request { id: raw.id, file: raw.file, ask }))
    }

    /// Answers a request. Extents that were asked for are [pushed](MappedFile::push) before.
    ///
    /// # Errors
    /// ENOENT: nobody waits for it any more.
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

/// What a file was found to be when it was [settled](MappedFile::settle).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Written for the first time since this was last told. In bytes, and whole blocks.
    pub ranges: Vec<Range<u64>>,
    /// Of the file, in bytes. None of the ranges begins behind it.
    pub size: u64,
    /// How many others have it open or mapped.
    pub users: u32,
}

/// What was cut of a file, until it is free.
#[derive(Debug)]
pub struct Held<'a> {
    file: &'a MappedFile,
    /// Where it begins in the file, in bytes.
    pub from: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // What was held before cannot fail to be let go.
        let _ = calls::freed(self.file.control.as_fd(), self.file.file.as_fd());
    }
}

/// What the kernel asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// To be answered by this number.
    pub id: u64,
    /// The [cookie](MappedFile::cookie) of a file.
    pub file: u64,
    /// What it is.
    pub ask: Ask,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Blocks for a range, in bytes and whole blocks: somebody is about to write there.
    Allocate {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        length: u64,
    },
    /// What was written is to last: the file is to be [settled](MappedFile::settle).
    Sync,
}

impl MappedFile {
    /// Maps parts of it that are not mapped yet, in any order.
    ///
    /// # Errors
    /// EINVAL: empty or not aligned. ENXIO: not on the device. EEXIST: over another extent. E2BIG: too many of this file
    /// (1 Mi) or connection (parameter `most_extents` of the module). ENOMEM. Those before the 4096 of which one failed
    /// are mapped.
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

    /// The number by which requests name it.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Makes it end at `size`, and takes what lies behind that out of its map. Nothing is written behind it any more when this returns: only then may blocks be freed.
    ///
    /// # Errors
    /// EFBIG, EROFS, EIO, ENOMEM.
    pub fn truncate(&self, size: u64) -> io::Result<()> {
        self.cut(0, (size, 0)).map(drop)
    }

    /// Has a range read as zeros, and takes its whole blocks out of the map. As for [`truncate`](Self::truncate), these
    /// may be freed afterwards.
    ///
    /// # Errors
    /// EINVAL: empty. EROFS, EIO, ENOMEM.
    pub fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.cut(calls::CUT_RANGE, (offset, length)).map(drop)
    }

    fn cut(&self, flags: u32, range: (u64, u64)) -> io::Result<u64> {
        calls::cut(self.control.as_fd(), self.file.as_fd(), flags, range)
    }

    /// As [`truncate`](Self::truncate). Until what is returned is dropped the kernel asks nobody for blocks behind the
    /// new end, and takes none there (EAGAIN): so that all there are can be freed.
    ///
    /// # Errors
    /// As `truncate`; EBUSY: something of the file is held already.
    pub fn truncate_held(&self, size: u64) -> io::Result<Held<'_>> {
        self.cut(calls::CUT_HOLD, (size, 0)).map(|from| Held { file: self, from })
    }

    /// As [`punch`](Self::punch), and held as with [`truncate_held`](Self::truncate_held).
    ///
    /// # Errors
    /// As `punch`; EBUSY: something of the file is held already.
    pub fn punch_held(&self, offset: u64, length: u64) -> io::Result<Held<'_>> {
        self.cut(calls::CUT_RANGE | calls::CUT_HOLD, (offset, length)).map(|from| Held { file: self, from })
    }

    /// Makes it end at `size` if it ends before. Its map stays.
    ///
    /// # Errors
    /// EFBIG, EROFS, EIO, ENOMEM.
    pub fn grow(&self, size: u64) -> io::Result<()> {
        self.cut(calls::CUT_GROW, (size, 0)).map(drop)
    }

    /// Takes the blocks behind its end, wherever that is by now, out of its map, and holds what is there.
    ///
    /// # Errors
    /// EROFS, ENOMEM; EBUSY: something of the file is held already.
    pub fn cut_tail(&self) -> io::Result<Held<'_>> {
        self.cut(calls::CUT_TAIL | calls::CUT_HOLD, (0, 0)).map(|from| Held { file: self, from })
    }

    /// Has the device keep what was written, and tells which ranges were written for the first time since this was last
    /// called, and the file's size.
    ///
    /// # Errors
    /// EIO: some of it may be lost.
    pub fn settle(&self) -> io::Result<Settled> {
        self.tell(false)
    }

    /// As [`settle`](Self::settle), of what reached the device by now: nothing is written for it, and the device has yet to
    /// be told to keep it.
    ///
    /// # Errors
    /// As `settle`.
    pub fn look(&self) -> io::Result<Settled> {
        self.tell(true)
    }

    fn tell(&self, look: bool) -> io::Result<Settled> {
        let mut told = Vec::new();
        loop {
            let found = calls::settle(self.control.as_fd(), self.file.as_fd(), look, &mut told)?;
            if !found.more {
                let ranges = told.iter().map(|range| range.offset..range.offset + range.length);
                return Ok(Settled { ranges: ranges.collect(), size: found.size, users: found.users });
            }
        }
    }

    /// The open file. No more can be mapped.
    pub fn into_fd(self) -> OwnedFd {
        self.file
    }
}

impl AsFd for MappedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
