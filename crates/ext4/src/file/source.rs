//! The data of a write: bytes in memory, or data that only its owner can move.

use std::io;
use std::ops::Range;

use crate::device::Device;

/// Data outside this process's memory, such as pages of the kernel. Its owner moves it to the file behind the device.
pub trait ForeignData {
    /// Returns its length in bytes.
    fn len(&self) -> usize;

    /// Reports whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes a range of it to the file behind the device, from `offset` of that file on.
    ///
    /// # Errors
    /// EIO, ENOSPC or another I/O error; part of the range may have been written.
    fn write_to_backing_file(&self, range: Range<usize>, offset: u64) -> io::Result<()>;

    /// Returns a range of it as bytes in memory.
    ///
    /// # Errors
    /// EIO or another I/O error.
    fn to_bytes(&self, range: Range<usize>) -> io::Result<Vec<u8>>;
}

/// The data of a write.
#[derive(Clone, Copy)]
pub enum WriteSource<'a> {
    /// Bytes in memory.
    Bytes(&'a [u8]),
    /// Data elsewhere.
    Foreign(&'a dyn ForeignData),
}

impl<'a> From<&'a [u8]> for WriteSource<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl std::fmt::Debug for WriteSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteSource").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl WriteSource<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Foreign(data) => data.len(),
        }
    }

    /// Writes a range of the data to the device at `offset`.
    pub(super) fn write(&self, range: Range<usize>, device: &dyn Device, offset: u64) -> io::Result<()> {
        match self {
            Self::Bytes(bytes) => device.write_at(offset, &bytes[range]),
            Self::Foreign(data) => match device.writable_offset(offset, range.len() as u64) {
                Some(place) => data.write_to_backing_file(range, place),
                None => device.write_at(offset, &data.to_bytes(range)?),
            },
        }
    }
}
