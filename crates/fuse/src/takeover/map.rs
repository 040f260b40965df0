//! Memory files (memfd) shared with later servers. They are mapped as atomic words, keep every store across a crash of the
//! process, and are sealed against shrinking.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// A memory file mapped as an array of words. It outlives the process as long as another process holds the descriptor.
///
/// Plain stores are enough: everything stored before a SIGKILL is visible afterwards, in program order.
#[derive(Debug)]
pub struct Map {
    file: OwnedFd,
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping lives until drop, and is reached through atomics only.
unsafe impl Send for Map {}
// SAFETY: the mapping lives until drop, and is reached through atomics only.
unsafe impl Sync for Map {}

impl Map {
    /// Makes a new file of zeroes; its memory is allocated on write.
    ///
    /// # Errors
    /// No descriptor or no address space is available.
    pub fn create(words: usize) -> io::Result<Self> {
        let file = rustix::fs::memfd_create("shunt-state", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, (words * size_of::<u64>()) as u64)?;
        // A file that cannot shrink cannot cause SIGBUS.
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Self::of(file, words)
    }

    /// Opens a file of the same number of words that another server made.
    ///
    /// # Errors
    /// The file is not of that size, or not sealed.
    pub fn open(file: OwnedFd, words: usize) -> io::Result<Self> {
        let size = rustix::fs::fstat(&file)?.st_size;
        let sealed = rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS));
        if !sealed || size != (words * size_of::<u64>()) as i64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the state file has the wrong size or is not sealed",
            ));
        }
        Self::of(file, words)
    }

    /// Opens a file of any number of words that another server made.
    ///
    /// # Errors
    /// The file is empty, not of whole words, or not sealed.
    pub fn open_any(file: OwnedFd) -> io::Result<Self> {
        let size = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        Self::open(file, usize::try_from(size / size_of::<u64>() as u64).unwrap_or(0))
    }

    fn of(file: OwnedFd, words: usize) -> io::Result<Self> {
        let length = words * size_of::<u64>();
        // SAFETY: a new mapping at an address of the kernel's choice; the file is as long and cannot shrink.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { file, start, words })
    }
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Deref for Map {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has that many words, page-aligned, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which no reference is left.
        unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.words * size_of::<u64>()).ok() };
    }
}
