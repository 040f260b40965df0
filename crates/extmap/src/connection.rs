//! A block device, and files mapped to it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

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
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
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
        Ok(MappedFile { control: self.control.clone(), file: calls::new_file(self.control.as_fd(), size)? })
    }
}

/// A file mapped to a device.
#[derive(Debug)]
pub struct MappedFile {
    control: Arc<OwnedFd>,
    file: OwnedFd,
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
        extents.chunks(calls::PUSH_MOST).try_for_each(|part| {
            let part: Vec<RawExtent> = part.iter().map(raw).collect();
            calls::push(self.control.as_fd(), self.file.as_fd(), &part)
        })
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
