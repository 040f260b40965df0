//! A block device whose freed blocks are discarded with `BLKDISCARD`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use rustix::fs::ioctl_blksszget;
use shunt_ext4::{Device, FileDevice};

const BLKDISCARD: libc::Ioctl = 0x1277;

/// A [`FileDevice`] whose `discard` uses `BLKDISCARD`: punching a hole into a disk would write zeros where the disk cannot
/// guarantee that discarded blocks read as zeros.
#[derive(Debug)]
pub struct BlockDevice {
    bytes: FileDevice,
    file: File,
    /// The logical sector size, the smallest unit of a discard. A power of two.
    sector: u64,
}

impl BlockDevice {
    pub fn new(file: File, read_only: bool) -> io::Result<Self> {
        let sector = u64::from(ioctl_blksszget(&file)?).max(512);
        Ok(Self { bytes: FileDevice::new(file.try_clone()?, read_only)?, file, sector })
    }
}

/// The whole sectors within a range.
fn whole_sectors(offset: u64, length: u64, sector: u64) -> Option<[u64; 2]> {
    let start = offset.checked_next_multiple_of(sector)?;
    let end = offset.checked_add(length)? / sector * sector;
    (start < end).then(|| [start, end - start])
}

impl Device for BlockDevice {
    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn is_read_only(&self) -> bool {
        self.bytes.is_read_only()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.bytes.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.bytes.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.bytes.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        if self.is_read_only() {
            return Err(rustix::io::Errno::ROFS.into());
        }
        let Some(range) = whole_sectors(offset, length, self.sector) else { return Ok(()) };
        // SAFETY: the call only reads the two numbers.
        let done = unsafe { libc::ioctl(self.file.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn backing_offset(&self, offset: u64, length: u64) -> Option<u64> {
        self.bytes.backing_offset(offset, length)
    }

    fn writable_offset(&self, offset: u64, length: u64) -> Option<u64> {
        self.bytes.writable_offset(offset, length)
    }
}

#[cfg(test)]
mod tests {
    use super::whole_sectors;

    #[test]
    fn parts_of_sectors_are_kept() {
        assert_eq!(whole_sectors(1024, 4096, 512), Some([1024, 4096]));
        assert_eq!(whole_sectors(1024, 8192, 4096), Some([4096, 4096]));
        assert_eq!(whole_sectors(1024, 1024, 4096), None);
        assert_eq!(whole_sectors(u64::MAX - 100, 100, 4096), None);
    }
}
