//! Scatter-gather lists of a guest's memory.
//!
//! The guest may write all of it at any time, so no reference to it is ever made: bytes are copied out, or the kernel moves them
//! between the memory and a file.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use vm_memory::{
    Bytes, GuestAddress, GuestMemoryAtomic, GuestMemoryBackend, GuestMemoryLoadGuard, GuestMemoryMmap,
    VolatileSlice,
};

/// The memory map of a guest, which may change while the guest runs.
pub(crate) type Guest = GuestMemoryAtomic<GuestMemoryMmap>;
/// A snapshot of the memory map. The memory stays mapped while it lives.
pub(crate) type Mapped = GuestMemoryLoadGuard<GuestMemoryMmap>;

/// Maximum number of segments of one system call.
const MAX_SEGMENTS: usize = libc::UIO_MAXIOV as usize;

/// A contiguous range of the guest's memory, completely mapped.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: GuestAddress,
    length: usize,
}

/// A list of ranges that form one buffer.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    pieces: Vec<Piece>,
    length: usize,
}

impl Pieces {
    /// Appends a range.
    ///
    /// # Errors
    /// EFAULT where a part is not memory; E2BIG beyond 4 GiB.
    pub(crate) fn push(&mut self, memory: &Mapped, start: GuestAddress, length: u32) -> Result<(), Errno> {
        if length == 0 {
            return Ok(());
        }
        let total = self.length.checked_add(length as usize).filter(|total| *total <= u32::MAX as usize);
        self.length = total.ok_or(Errno::TOOBIG)?;
        let length = length as usize;
        memory.get_slices(start, length).try_for_each(|slice| slice.map(drop)).map_err(|_| Errno::FAULT)?;
        self.pieces.push(Piece { start, length });
        Ok(())
    }

    /// Returns the total number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the number of ranges.
    pub(crate) fn count(&self) -> usize {
        self.pieces.len()
    }

    /// Returns the slices of up to `limit` bytes from `skip` on.
    fn slices<'a>(
        &'a self,
        memory: &'a Mapped,
        mut skip: usize,
        mut limit: usize,
    ) -> impl Iterator<Item = VolatileSlice<'a>> {
        let parts = self.pieces.iter().filter_map(move |piece| {
            let skipped = skip.min(piece.length);
            skip -= skipped;
            let length = (piece.length - skipped).min(limit);
            limit -= length;
            // Ranges were checked when they were added: they do not wrap.
            (length > 0).then(|| (GuestAddress(piece.start.0 + skipped as u64), length))
        });
        parts.flat_map(|(start, length)| memory.get_slices(start, length)).map_while(Result::ok)
    }

    /// Copies bytes out, from `skip` on. Returns the number of bytes copied.
    pub(crate) fn read(&self, memory: &Mapped, skip: usize, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        for slice in self.slices(memory, skip, bytes.len()) {
            let room = &mut bytes[done..done + slice.len()];
            if slice.read_slice(room, 0).is_err() {
                break;
            }
            done += room.len();
        }
        done
    }

    /// Copies bytes in, from `skip` on. Returns the number of bytes copied.
    pub(crate) fn write(&self, memory: &Mapped, skip: usize, bytes: &[u8]) -> usize {
        let mut done = 0;
        for slice in self.slices(memory, skip, bytes.len()) {
            let part = &bytes[done..done + slice.len()];
            if slice.write_slice(part, 0).is_err() {
                break;
            }
            done += part.len();
        }
        done
    }

    /// Reads `length` bytes of a file at `offset` into the buffer, from `skip` on. Returns the number of bytes read.
    ///
    /// # Errors
    /// The error of `preadv(2)` where nothing was read.
    pub(crate) fn read_file(
        &self,
        memory: &Mapped,
        skip: usize,
        length: usize,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<usize, Errno> {
        self.move_all(memory, skip, length, offset, |vectors, offset| {
            // SAFETY: the vectors are mapped and writable for the duration of the call, and no reference to the memory behind
            // them exists.
            unsafe { libc::preadv(file.as_raw_fd(), vectors.as_ptr(), vectors.len() as libc::c_int, offset) }
        })
    }

    /// Writes `length` bytes of the buffer, from `skip` on, to a file at `offset`. Returns the number of bytes written: fewer
    /// only where an error followed some progress.
    ///
    /// # Errors
    /// The error of `pwritev(2)` where nothing was written.
    pub(crate) fn write_file(
        &self,
        memory: &Mapped,
        skip: usize,
        length: usize,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<usize, Errno> {
        self.move_all(memory, skip, length, offset, |vectors, offset| {
            // SAFETY: the vectors are mapped for the duration of the call; the kernel only reads the memory behind them.
            unsafe {
                libc::pwritev2(file.as_raw_fd(), vectors.as_ptr(), vectors.len() as libc::c_int, offset, 0)
            }
        })
    }

    fn move_all(
        &self,
        memory: &Mapped,
        skip: usize,
        length: usize,
        offset: u64,
        step: impl Fn(&[libc::iovec], libc::off_t) -> isize,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        let mut failed = None;
        while done < length && failed.is_none() {
            let slices = self.slices(memory, skip + done, length - done).take(MAX_SEGMENTS);
            let (guards, vectors): (Vec<_>, Vec<_>) = slices
                .map(|slice| {
                    let guard = slice.ptr_guard_mut();
                    let vector = libc::iovec { iov_base: guard.as_ptr().cast(), iov_len: slice.len() };
                    (guard, vector)
                })
                .unzip();
            let position = offset.checked_add(done as u64).and_then(|position| position.try_into().ok());
            let position: libc::off_t = position.ok_or(Errno::INVAL)?;
            match step(&vectors, position) {
                0 => break,
                moved if moved > 0 => done += moved as usize,
                _ => {
                    let error = std::io::Error::last_os_error();
                    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    failed = (errno != Errno::INTR).then_some(errno);
                }
            }
            drop(guards);
        }
        match failed {
            Some(errno) if done == 0 => Err(errno),
            _ => Ok(done),
        }
    }
}
