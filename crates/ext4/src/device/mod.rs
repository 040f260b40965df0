//! Where an image lies.
//!
//! The engine asks little of a device, so that a file, a part of a disk, memory, or a device that fails on purpose will
//! all do.

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

/// Random access to bytes that last.
///
/// All methods may be called from several threads at once. Reads and writes that overlap in time on the same bytes give
/// either; the engine orders its own.
pub trait Device: Send + Sync {
    /// Bytes on the device.
    fn size(&self) -> u64;

    /// Nothing may be written.
    fn is_read_only(&self) -> bool;

    /// Fills the buffer from `offset`, in bytes.
    ///
    /// # Errors
    /// EIO and the like; UnexpectedEof past the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`, in bytes. It lasts once [`flush`](Self::flush) returned.
    ///
    /// # Errors
    /// EIO, ENOSPC and the like; EROFS where nothing may be written.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Returns when all that was written before lasts through a power cut.
    ///
    /// # Errors
    /// EIO: some of it may be lost.
    fn flush(&self) -> io::Result<()>;

    /// Tells that a range, in bytes, holds nothing of value any more. It may read as anything afterwards.
    ///
    /// # Errors
    /// EOPNOTSUPP where the device cannot use that.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let _ = (offset, length);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Where a range, in bytes, lies in the file that the device was made of; `None` where it does not lie there as it
    /// is.
    fn place(&self, offset: u64, length: u64) -> Option<u64> {
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

    fn place(&self, offset: u64, length: u64) -> Option<u64> {
        (**self).place(offset, length)
    }
}

/// Checks that a range lies on a device of `size` bytes.
fn within(size: u64, offset: u64, length: usize) -> io::Result<()> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= size => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
