//! The state of an open file, and the operations on its backing file that need nothing of the mount.
//!
//! An open keeps the version of the file that it was made of, even if another one replaces the file.

use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::FallocateFlags;
use shunt_fuse::Errno;
use shunt_volume::replica::{self, Replica};

use crate::errseq::ErrSeq;

/// An open file.
pub(crate) struct OpenFile {
    pub(crate) num: u64,
    pub(crate) writes: bool,
    /// The open permits a writable mapping.
    pub(crate) maps_writable: bool,
    pub(crate) opened: replica::Opened,
    /// Duplicate of `opened.file` for replies that carry data, made on demand: most files are never read through the daemon.
    pub(crate) data: OnceLock<Arc<OwnedFd>>,
    /// Range known to be present, around the last read.
    pub(crate) present: Mutex<Range<u64>>,
    /// The kernel reads the file through its page cache, up to the length that it knows.
    pub(crate) buffered: AtomicBool,
    /// Number of foreign lengths reported to the kernel, plus one, when the kernel last certainly knew the length of this
    /// version.
    pub(crate) size_epoch: AtomicU64,
    /// State of the file as last published to peers.
    pub(crate) published: Mutex<Option<FileStamp>>,
    pub(crate) errseq: ErrSeq,
    /// The backing file is stored for the next daemon, since its version may be replaced.
    pub(crate) stored: AtomicBool,
}

impl OpenFile {
    pub(crate) fn file(&self) -> &File {
        &self.opened.file
    }

    pub(crate) fn data(&self) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(data) = self.data.get() {
            return Ok(data.clone());
        }
        let file = self.opened.file.try_clone().map_err(errno)?;
        Ok(self.data.get_or_init(|| Arc::new(file.into())).clone())
    }
}

/// Size and mtime of a file, which change when it is written.
pub(crate) type FileStamp = (u64, i64, i64);

pub(crate) fn stamp(open: &OpenFile) -> Result<FileStamp, Errno> {
    stamp_of(open.file())
}

pub(crate) fn stamp_of(file: &File) -> Result<FileStamp, Errno> {
    let metadata = file.metadata().map_err(errno)?;
    Ok((metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

pub(crate) fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Runs a change that may extend a file, after reserving the growth in the volume's limits. The kernel makes one such change of
/// an inode at a time.
pub(crate) fn limited<T>(
    replica: &Replica,
    open: &OpenFile,
    end: impl FnOnce(u64) -> u64,
    change: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    if !replica.is_limited() {
        return change();
    }
    let length = || open.file().metadata().map(|now| now.len()).map_err(errno);
    let (before, session) = (length()?, open.opened.session);
    let end = end(before);
    if end > before {
        replica.grow(open.num, session, end)?;
    }
    let done = change();
    if length()? != before.max(end) {
        replica.recount(open.num, session)?;
    }
    done
}

pub(crate) fn fallocate(open: &OpenFile, mode: u32, offset: u64, length: u64) -> Result<(), Errno> {
    let mode = FallocateFlags::from_bits(mode).ok_or(Errno::OPNOTSUPP)?;
    rustix::fs::fallocate(open.file(), mode, offset, length)
}

pub(crate) fn seek(open: &OpenFile, offset: u64, hole: bool) -> Result<u64, Errno> {
    if !open.opened.complete {
        let size = open.file().metadata().map_err(errno)?.len();
        return match offset < size {
            true => Ok(if hole { size } else { offset }),
            false => Err(Errno::NXIO),
        };
    }
    seek_in(open.file(), offset, hole)
}

pub(crate) fn seek_in(file: impl std::os::fd::AsFd, offset: u64, hole: bool) -> Result<u64, Errno> {
    use rustix::fs::SeekFrom;
    rustix::fs::seek(file, if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) })
}
