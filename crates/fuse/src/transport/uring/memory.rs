//! Memory into which the kernel writes requests, and from which it reads replies.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Anonymous memory of whole pages, or a part of it. Untouched pages are not allocated.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    length: usize,
    mapping: Arc<Mapping>,
}

// SAFETY: the bytes are owned by this value alone, on any thread.
unsafe impl Send for Memory {}

impl Memory {
    pub(crate) fn new(length: usize) -> std::io::Result<Self> {
        let mapping = Mapping::new(length)?;
        Ok(Self { start: mapping.start, length, mapping: Arc::new(mapping) })
    }

    /// Splits it into parts of `size` bytes; a shorter rest is dropped.
    pub(crate) fn split(self, size: usize) -> Vec<Self> {
        // SAFETY: every part lies within the mapping: there are as many as fit.
        let start = |index| unsafe { self.start.add(index * size) };
        (0..self.length / size)
            .map(|index| Self { start: start(index), length: size, mapping: self.mapping.clone() })
            .collect()
    }

    /// Returns the address of `offset`, for the kernel's use.
    pub(crate) fn address(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.length);
        self.start.as_ptr().wrapping_add(offset)
    }
}

impl Deref for Memory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped and initialised for as long as `self` lives. The kernel writes it between the submission of an entry and
        // its completion only, and the entry gives no other thread access to `self` meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped and initialised as for `deref`, and exclusively borrowed: `self` is borrowed mutably, and parts of a
        // mapping do not overlap.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

/// A mapping, which lives as long as the last part of it.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it gives no access to the bytes; it only unmaps them, on any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(length: usize) -> std::io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, of an address that the kernel chooses, overlaps nothing.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags)? };
        // A request often fills one page of a large buffer: huge pages would allocate and zero many more.
        // SAFETY: it changes how the pages of the new mapping are allocated, and nothing else.
        unsafe { rustix::mm::madvise(start, length, Advice::LinuxNoHugepage) }.ok();
        let start = NonNull::new(start.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and no part of it outlives `self`.
        unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) }.ok();
    }
}
