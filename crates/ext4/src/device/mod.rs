//! Block devices that hold file system images.
//!
//! The [`Device`] trait is minimal, so that a file, a partition, memory, and a fault-injecting device can all implement it.

mod faulty;
mod file;
mod memory;
mod overlay;
mod recorder;
mod window;

use std::io;

pub use faulty::{Fault, Faulty, Operation};
pub use file::FileDevice;
pub use memory::MemoryDevice;
pub use overlay::Overlay;
pub use recorder::{Event, Recorder};
pub use window::Window;

/// Random access to durable bytes.
///
/// All methods may be called from several threads at once. Concurrent overlapping reads and writes return either version of the
/// bytes; the engine orders its own.
pub trait Device: Send + Sync {
    /// Returns the size in bytes.
    fn size(&self) -> u64;

    /// Reports whether writes are impossible.
    fn is_read_only(&self) -> bool;

    /// Fills the buffer from `offset`, in bytes.
    ///
    /// # Errors
    /// EIO or another I/O error; `UnexpectedEof` beyond the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`, in bytes. The data is durable once [`flush`](Self::flush) has returned.
    ///
    /// # Errors
    /// EIO, ENOSPC or another I/O error; EROFS if the device is read-only.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Returns when all previous writes are durable across a power failure.
    ///
    /// # Errors
    /// EIO: some writes may be lost.
    fn flush(&self) -> io::Result<()>;

    /// Discards a range, in bytes: its content is undefined afterwards.
    ///
    /// # Errors
    /// EOPNOTSUPP if the device does not support discard.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let _ = (offset, length);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the offset of a range, in bytes, within the file that backs the device; `None` if it is not stored there in plain
    /// form.
    fn backing_offset(&self, offset: u64, length: u64) -> Option<u64> {
        let _ = (offset, length);
        None
    }

    /// Returns the offset of a range, in bytes, within the file that backs the device, where writing to that file is the same as
    /// [`write_at`](Self::write_at).
    fn writable_offset(&self, offset: u64, length: u64) -> Option<u64> {
        let _ = (offset, length);
        None
    }
}

impl<D: Device + ?Sized> Device for std::sync::Arc<D> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn is_read_only(&self) -> bool {
        (**self).is_read_only()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        (**self).write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        (**self).discard(offset, length)
    }

    fn backing_offset(&self, offset: u64, length: u64) -> Option<u64> {
        (**self).backing_offset(offset, length)
    }

    fn writable_offset(&self, offset: u64, length: u64) -> Option<u64> {
        (**self).writable_offset(offset, length)
    }
}

/// Checks that a range is within a device of `size` bytes.
fn within(size: u64, offset: u64, length: usize) -> io::Result<()> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= size => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
