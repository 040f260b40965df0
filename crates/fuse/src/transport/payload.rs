//! Payloads of `read` and `write`: bytes in memory, in a pipe, in registered pages of the kernel, in a guest's memory, or a range
//! of an open file that the transport splices.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use crate::transport::channel::{self, FileRange};
use crate::transport::uring::PagesPayload;
#[cfg(feature = "virtiofs")]
use crate::transport::virtio::GuestPayload;

/// The reply to `read`.
#[derive(Debug, Clone)]
pub enum Data<'a> {
    /// Bytes borrowed from the file system.
    Slice(&'a [u8]),
    /// Bytes allocated for this reply.
    Owned(Vec<u8>),
    /// A range of an open file.
    File(FileRange),
}

impl From<Vec<u8>> for Data<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}

impl<'a> From<&'a [u8]> for Data<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Slice(bytes)
    }
}

impl<'a> Data<'a> {
    /// Truncates the reply to `size` bytes: the kernel refuses a longer one.
    pub(crate) fn cut(self, size: u32) -> Self {
        match self {
            Self::Slice(bytes) => Self::Slice(&bytes[..bytes.len().min(size as usize)]),
            Self::Owned(mut bytes) => {
                bytes.truncate(size as usize);
                Self::Owned(bytes)
            }
            Self::File(range) => Self::File(FileRange { length: range.length.min(size), ..range }),
        }
    }

    /// Returns its length in bytes; of a file that is shorter than the range, more than the reply will have.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Slice(bytes) => bytes.len() as u64,
            Self::Owned(bytes) => bytes.len() as u64,
            Self::File(range) => range.length.into(),
        }
    }

    /// Returns the part of `whole` that a read of `size` bytes at `offset` sees.
    pub fn window(whole: &'a [u8], offset: u64, size: u32) -> Self {
        let start = whole.len().min(offset.try_into().unwrap_or(usize::MAX));
        let end = whole.len().min(start.saturating_add(size as usize));
        Self::Slice(&whole[start..end])
    }
}

/// A payload that the transport left in a pipe instead of copying it.
#[derive(Debug)]
pub(crate) struct SplicedPayload {
    pub(crate) pipe: crate::transport::pipe::Pipe,
    pub(crate) length: usize,
}

/// The data of a WRITE that the transport did not copy.
#[derive(Debug)]
pub(crate) enum Payload {
    Pipe(SplicedPayload),
    Pages(PagesPayload),
    #[cfg(feature = "virtiofs")]
    Guest(GuestPayload),
}

#[derive(Debug)]
pub(crate) enum WriteSource<'a> {
    Slice(&'a [u8]),
    Pipe(&'a SplicedPayload),
    Pages(&'a PagesPayload),
    #[cfg(feature = "virtiofs")]
    Guest(&'a GuestPayload),
}

/// The data of a `write` that is in the kernel's pages.
#[derive(Debug, Clone, Copy)]
pub struct KernelPages<'a>(&'a PagesPayload);

impl KernelPages<'_> {
    /// Returns the number of bytes to write.
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Reports whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes a range of the data to `file` at `offset`, without a copy in memory. Returns how many bytes were written: fewer only
    /// where an error followed some progress (a full disk).
    ///
    /// # Errors
    /// The error of `pwrite(2)` where nothing was written; EINVAL for a range beyond the data.
    pub fn write_to(&self, range: Range<usize>, file: BorrowedFd<'_>, offset: u64) -> Result<usize, Errno> {
        self.check(&range)?;
        self.0.pages.transfer(file, offset, range)
    }

    /// Returns a range of the data, copied.
    ///
    /// # Errors
    /// EIO where there are fewer bytes than the kernel announced, and after the reply; EINVAL for a range beyond the data.
    pub fn to_bytes(&self, range: Range<usize>) -> Result<Vec<u8>, Errno> {
        self.check(&range)?;
        self.0.pages.bytes(range)
    }

    fn check(&self, range: &Range<usize>) -> Result<(), Errno> {
        if range.start <= range.end && range.end <= self.len() { Ok(()) } else { Err(Errno::INVAL) }
    }
}

/// The payload of a `write`: in memory, still in a pipe or in the kernel's pages, or in the memory of a guest.
#[derive(Debug)]
pub struct WriteData<'a> {
    pub(crate) source: WriteSource<'a>,
}

impl<'a> WriteData<'a> {
    /// Wraps bytes in memory.
    pub fn slice(bytes: &'a [u8]) -> Self {
        Self { source: WriteSource::Slice(bytes) }
    }

    pub(crate) fn left(payload: &'a Payload) -> Self {
        let source = match payload {
            Payload::Pipe(payload) => WriteSource::Pipe(payload),
            Payload::Pages(payload) => WriteSource::Pages(payload),
            #[cfg(feature = "virtiofs")]
            Payload::Guest(payload) => WriteSource::Guest(payload),
        };
        Self { source }
    }

    /// Returns the number of bytes to write.
    pub fn len(&self) -> usize {
        match &self.source {
            WriteSource::Slice(bytes) => bytes.len(),
            WriteSource::Pipe(payload) => payload.length,
            WriteSource::Pages(payload) => payload.length,
            #[cfg(feature = "virtiofs")]
            WriteSource::Guest(payload) => payload.len(),
        }
    }

    /// Reports whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes, copied out of a pipe, of the kernel's pages or of a guest's memory where they are there.
    ///
    /// # Errors
    /// EIO where there are fewer than the kernel announced, and where pages are asked for after the reply.
    pub fn into_bytes(self) -> Result<std::borrow::Cow<'a, [u8]>, Errno> {
        match self.source {
            WriteSource::Slice(bytes) => Ok(bytes.into()),
            WriteSource::Pipe(payload) => {
                let mut bytes = vec![0; payload.length];
                payload.pipe.read_exact(&mut bytes)?;
                Ok(bytes.into())
            }
            WriteSource::Pages(payload) => Ok(payload.pages.bytes(0..payload.length)?.into()),
            #[cfg(feature = "virtiofs")]
            WriteSource::Guest(payload) => Ok(payload.to_vec()?.into()),
        }
    }

    /// Writes all bytes to `file` at `offset`, without a copy in memory where they are in a pipe or in the kernel's pages. Returns how
    /// many were written: fewer than [`len`](Self::len) only where an error followed some progress (a full disk).
    ///
    /// # Errors
    /// The error of `pwrite(2)` or `splice(2)` where nothing was written.
    pub fn write_to(self, file: BorrowedFd<'_>, offset: u64) -> Result<usize, Errno> {
        let mut done = 0;
        match self.source {
            #[cfg(feature = "virtiofs")]
            WriteSource::Guest(payload) => return payload.write_to(file, offset),
            WriteSource::Pages(payload) => return payload.pages.transfer(file, offset, 0..payload.length),
            WriteSource::Slice(bytes) => return channel::write(file, offset, bytes),
            WriteSource::Pipe(payload) => {
                let mut position = offset;
                while done < payload.length {
                    let step = rustix::pipe::splice(
                        payload.pipe.reader.as_fd(),
                        None,
                        file,
                        Some(&mut position),
                        payload.length - done,
                        rustix::pipe::SpliceFlags::MOVE,
                    );
                    match step {
                        Ok(0) => break,
                        Ok(n) => done += n,
                        Err(Errno::INTR) => {}
                        // Files that cannot be spliced to (O_APPEND among them) are written by copy.
                        Err(Errno::INVAL) if done == 0 => {
                            return self
                                .into_bytes()
                                .and_then(|bytes| WriteData::slice(&bytes).write_to(file, offset));
                        }
                        Err(errno) if done == 0 => return Err(errno),
                        Err(_) => break,
                    }
                }
            }
        }
        Ok(done)
    }

    /// Returns access to parts of the data, for a server that writes it in several pieces, where it is still in the kernel's pages:
    /// see [`Opened::zero_copy`](crate::Opened::zero_copy). `None` if it is elsewhere.
    pub fn kernel_pages(&self) -> Option<KernelPages<'a>> {
        match self.source {
            WriteSource::Pages(payload) => Some(KernelPages(payload)),
            _ => None,
        }
    }

    /// Writes all bytes at the current end of `file`, which need not be open with O_APPEND. Returns the count as
    /// [`write_to`](Self::write_to) does.
    ///
    /// # Errors
    /// The error of `pwritev2(2)` where nothing was written.
    pub fn append_to(self, file: BorrowedFd<'_>) -> Result<usize, Errno> {
        let bytes = self.into_bytes()?;
        channel::in_steps(bytes.len(), |done| {
            let rest = [std::io::IoSlice::new(&bytes[done..])];
            rustix::io::pwritev2(file, &rest, 0, rustix::io::ReadWriteFlags::APPEND)
        })
    }
}
