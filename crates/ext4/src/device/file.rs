//! Device backed by a file or a block device.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;

use super::{Device, within};

/// A device backed by an image file or a block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    size: u64,
    read_only: bool,
}

impl FileDevice {
    /// Creates a device on an open file. The size is determined once; if the file shrinks later, reads fail rather than return
    /// wrong bytes.
    ///
    /// # Errors
    /// Errors of determining the size.
    pub fn new(file: File, read_only: bool) -> io::Result<Self> {
        // `seek` also works for block devices, where `stat` reports size 0.
        let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        Ok(Self { file, size, read_only })
    }
}

impl Device for FileDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        within(self.size, offset, buffer.len())?;
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.read_only {
            return Err(rustix::io::Errno::ROFS.into());
        }
        within(self.size, offset, data.len())?;
        self.file.write_all_at(data, offset)
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.file.sync_data()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        if self.read_only {
            return Err(rustix::io::Errno::ROFS.into());
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, hole, offset, length)?)
    }

    fn backing_offset(&self, offset: u64, length: u64) -> Option<u64> {
        (offset.checked_add(length)? <= self.size).then_some(offset)
    }

    fn writable_offset(&self, offset: u64, length: u64) -> Option<u64> {
        self.backing_offset(offset, length).filter(|_| !self.read_only)
    }
}
