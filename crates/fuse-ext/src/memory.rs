//! Memory shared with BPF programs in the kernel: a mapping of an mmapable BPF array, or private memory without a program.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags};

/// A mapping of 64-bit words. Daemon and program access it concurrently, so it is exposed as atomics only.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to this value and is reached through atomics only.
unsafe impl Send for Memory {}
// SAFETY: the mapping belongs to this value and is reached through atomics only.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps the values of a BPF array that was made with `BPF_F_MMAPABLE`.
    ///
    /// # Errors
    /// The error of `mmap(2)`: EPERM where the map cannot be mapped, EINVAL where it is smaller.
    pub fn of_map(map: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no memory in use.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                words * 8,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                map,
                0,
            )?
        };
        Ok(Self::new(start, words))
    }

    /// Allocates zeroed memory that is private to this process: for tests, and where no program is attached.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn private(words: usize) -> io::Result<Self> {
        // SAFETY: as in `of_map`.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                words * 8,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
            )?
        };
        Ok(Self::new(start, words))
    }

    fn new(start: *mut std::ffi::c_void, words: usize) -> Self {
        Self { start: NonNull::new(start.cast()).expect("a mapping is never at 0"), words }
    }

    /// Returns all words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `words` words long, page-aligned, and lives as long as this value.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it exists any more.
        unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.words * 8).ok() };
    }
}
