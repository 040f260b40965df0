//! Bounded reading of files.

use std::io;

use super::RedactError;

/// A file to inspect.
pub trait Bytes {
    /// Reads from `offset` on into `room`; returns the number of bytes read, which is 0 only at the end of the file.
    ///
    /// # Errors
    /// The error of `pread(2)`.
    fn read_at(&self, offset: u64, room: &mut [u8]) -> io::Result<usize>;
}

impl Bytes for [u8] {
    fn read_at(&self, offset: u64, room: &mut [u8]) -> io::Result<usize> {
        let start = self.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        let length = room.len().min(self.len() - start);
        room[..length].copy_from_slice(&self[start..start + length]);
        Ok(length)
    }
}

impl Bytes for &[u8] {
    fn read_at(&self, offset: u64, room: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(offset, room)
    }
}

impl Bytes for std::fs::File {
    fn read_at(&self, offset: u64, room: &mut [u8]) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, room, offset)
    }
}

/// Limit on the metadata read from one file, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Limit on the data searched in one file, in bytes.
const MAX_SEARCHED_BYTES: usize = 512 << 20;
/// Limit on the read calls for one file.
const MAX_READS: usize = 1 << 18;

/// A reader that enforces these limits.
pub(super) struct Reader<'a> {
    file: &'a dyn Bytes,
    bytes: usize,
    searched: usize,
    reads: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a dyn Bytes) -> Self {
        Self { file, bytes: MAX_BYTES, searched: MAX_SEARCHED_BYTES, reads: MAX_READS }
    }

    /// Reads up to `length` bytes, fewer at the end of the file.
    pub(super) fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, RedactError> {
        self.reads = self.reads.checked_sub(1).ok_or(RedactError::TooComplex)?;
        self.bytes = self.bytes.checked_sub(length).ok_or(RedactError::TooComplex)?;
        Ok(read(self.file, offset, length)?)
    }

    /// Reads data that is only searched and then dropped; counts against the search limit.
    pub(super) fn search(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, RedactError> {
        let found = read(self.file, offset, length)?;
        self.searched = self.searched.checked_sub(found.len()).ok_or(RedactError::TooComplex)?;
        Ok(found)
    }

    /// Reads exactly `N` bytes; `None` if the file ends before.
    pub(super) fn array<const N: usize>(&mut self, offset: u64) -> Result<Option<[u8; N]>, RedactError> {
        Ok(self.read(offset, N)?.try_into().ok())
    }
}

/// Reads up to `length` bytes, fewer at the end of the file.
pub(super) fn read(file: &dyn Bytes, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    // The kernel rejects such offsets, and no file is that large.
    if i64::try_from(offset.saturating_add(length as u64)).is_err() {
        return Ok(Vec::new());
    }
    let mut room = vec![0; length];
    let mut done = 0;
    while done < length {
        match file.read_at(offset.saturating_add(done as u64), &mut room[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    room.truncate(done);
    Ok(room)
}

/// Reads a big-endian 16-bit number.
pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads a big-endian 32-bit number.
pub(super) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
