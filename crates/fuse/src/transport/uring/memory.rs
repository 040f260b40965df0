//! Memory into which the kernel writes requests, and from which it reads replies.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

/// Anonymous memory of whole pages. Untouched pages are not allocated.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is owned by this value alone, on any thread.
unsafe impl Send for Memory {}

impl Memory {
    pub(crate) fn new(length: usize) -> std::io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, of an address that the kernel chooses, overlaps nothing.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags)? };
        let start = NonNull::new(start.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
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
        // SAFETY: mapped and initialised as for `deref`, and exclusively borrowed: `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and no slice of it outlives `self`.
        unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) }.ok();
    }
}
