//! Memory for the arguments of calls, and addresses that a call must not trust.

use std::ffi::c_void;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::super::disk::BLOCK;
use super::super::rng::Rng;
use super::values::extreme;

/// Bytes that may be written.
const ROOM: usize = 64 * BLOCK as usize;
/// Bytes behind them that may only be read, and then bytes that may not be accessed.
const GUARD: usize = 16 * BLOCK as usize;

/// Memory that only the kernel and raw pointers access.
pub struct Arena(*mut c_void);

impl Arena {
    pub fn new() -> Self {
        // SAFETY: private memory that nothing refers to yet.
        unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let at =
                mmap_anonymous(std::ptr::null_mut(), ROOM + 2 * GUARD, access, MapFlags::PRIVATE).unwrap();
            mprotect(at.byte_add(ROOM), GUARD, MprotectFlags::READ).unwrap();
            mprotect(at.byte_add(ROOM + GUARD), GUARD, MprotectFlags::empty()).unwrap();
            Self(at)
        }
    }

    /// Returns an address at which the kernel may write any number of bytes: it faults before it leaves the arena.
    pub fn anywhere(&self, rng: &mut Rng) -> *mut c_void {
        let offset = match rng.roll(8) {
            0 => ROOM - 8 * rng.roll(16) as usize,
            1 => ROOM + GUARD - 8 * rng.roll(16) as usize,
            2 => ROOM + GUARD,
            3 => return std::ptr::without_provenance_mut(kernel_or_null(rng) as usize),
            _ => 8 * rng.roll(ROOM as u64 / 16) as usize,
        };
        // SAFETY: within the mapping.
        unsafe { self.0.byte_add(offset) }
    }

    /// Returns `length` bytes for direct I/O, at most half of the room.
    pub fn aligned(&self, length: usize) -> (*mut c_void, usize) {
        (self.0, length.min(ROOM / 2))
    }

    /// Writes words to memory, and returns it, or another address now and then.
    pub fn hold(&self, words: &[u64], rng: &mut Rng) -> *mut c_void {
        if rng.roll(24) == 0 {
            return self.anywhere(rng);
        }
        // In the second half: no buffer of the same call.
        let offset = ROOM / 2 + 8 * rng.roll((ROOM / 2 - words.len() * 8) as u64 / 8) as usize;
        // SAFETY: within the writable part, which no reference points to.
        unsafe {
            let at = self.0.byte_add(offset);
            at.cast::<u64>().copy_from_nonoverlapping(words.as_ptr(), words.len());
            at
        }
    }

    /// Reads a word.
    pub fn word(&self, at: *const c_void) -> u64 {
        assert!(at >= self.0.cast_const() && at <= self.0.wrapping_byte_add(ROOM - 8));
        // SAFETY: within the readable part.
        unsafe { at.cast::<u64>().read_unaligned() }
    }
}

/// Returns an address that is not of this process: 0, of the kernel, or invalid.
fn kernel_or_null(rng: &mut Rng) -> u64 {
    match rng.roll(3) {
        0 => 0,
        _ => extreme(rng) | 1 << 63,
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and there are no references into it.
        unsafe { munmap(self.0, ROOM + 2 * GUARD).unwrap() };
    }
}
