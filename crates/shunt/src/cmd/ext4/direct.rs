//! A block device accessed by direct I/O, past its page cache.
//!
//! While the kernel module writes files to the device, the device's page cache must hold nothing. It is written back in pages,
//! together with neighbouring blocks, and what it caches of a block that has been a file's in between is stale.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::sync::{PoisonError, RwLock};

use rustix::fs::{OFlags, ioctl_blksszget};
use shunt_ext4::Device;

use super::block::BlockDevice;
use crate::files;

/// Alignment of direct I/O buffers: no device requires more.
const ALIGNMENT: usize = 4096;

/// Most bytes of a single transfer.
const MAX_TRANSFER_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub struct DirectDevice {
    /// Serves everything but reads and writes.
    plain: BlockDevice,
    file: File,
    /// The smallest unit of a transfer. A power of two.
    sector: u64,
    /// Held exclusively while parts of sectors are written, by a read-modify-write.
    parts: RwLock<()>,
}

/// A buffer with the alignment of direct I/O.
struct Aligned {
    buffer: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    fn new(length: u64) -> Self {
        let length = length as usize;
        let room = vec![0; length + ALIGNMENT];
        let start = room.as_ptr().align_offset(ALIGNMENT);
        Self { buffer: room, start, length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.start + self.length]
    }
}

impl DirectDevice {
    /// Opens the device of this read-write descriptor a second time, with `O_DIRECT`.
    pub fn new(device: &File) -> io::Result<Self> {
        let path = files::path_of(device);
        let direct = OFlags::DIRECT.bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(direct).open(path)?;
        let sector = u64::from(ioctl_blksszget(&file)?).max(512);
        Ok(Self {
            plain: BlockDevice::new(device.try_clone()?, false)?,
            file,
            sector,
            parts: RwLock::new(()),
        })
    }

    /// Reads the whole sectors around a range; returns them, their offset on the device, and the offset of the range in them.
    fn around(&self, offset: u64, length: usize) -> io::Result<(Aligned, u64, usize)> {
        let first = offset / self.sector * self.sector;
        let end = (offset + length as u64).next_multiple_of(self.sector);
        let mut bytes = Aligned::new(end - first);
        self.file.read_exact_at(bytes.bytes(), first)?;
        Ok((bytes, first, (offset - first) as usize))
    }

    fn check(&self, offset: u64, length: usize) -> io::Result<()> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.size() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Device for DirectDevice {
    fn size(&self) -> u64 {
        self.plain.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.check(offset, buffer.len())?;
        for (n, part) in buffer.chunks_mut(MAX_TRANSFER_BYTES as usize).enumerate() {
            let (mut bytes, _, within) = self.around(offset + n as u64 * MAX_TRANSFER_BYTES, part.len())?;
            part.copy_from_slice(&bytes.bytes()[within..within + part.len()]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len())?;
        let whole = (offset | data.len() as u64) & (self.sector - 1) == 0;
        let (_shared, _alone) = match whole {
            true => (Some(self.parts.read().unwrap_or_else(PoisonError::into_inner)), None),
            false => (None, Some(self.parts.write().unwrap_or_else(PoisonError::into_inner))),
        };
        for (n, part) in data.chunks(MAX_TRANSFER_BYTES as usize).enumerate() {
            let at = offset + n as u64 * MAX_TRANSFER_BYTES;
            let (mut bytes, first, within) = match whole {
                true => (Aligned::new(part.len() as u64), at, 0),
                false => self.around(at, part.len())?,
            };
            bytes.bytes()[within..within + part.len()].copy_from_slice(part);
            self.file.write_all_at(bytes.bytes(), first)?;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.plain.discard(offset, length)
    }

    fn backing_offset(&self, offset: u64, length: u64) -> Option<u64> {
        self.plain.backing_offset(offset, length)
    }
}
