//! Calls of the control device and of files, with random arguments.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::super::disk::BLOCK;
use super::super::raw_calls::issue;
use super::BLOCKS;
use super::pool::{OpenFile, descriptor};
use super::thread::Thread;
use super::values::{extreme, flags, length, position};

/// Number of the call that returns a descriptor.
const FILE: u64 = 2;

impl Thread<'_> {
    pub fn bind(&mut self, control: &File) {
        let rng = &mut self.rng;
        let device = self.devices[usize::from(rng.roll(4) == 0)];
        let version = if rng.roll(16) == 0 { flags(rng) } else { 2 };
        let block_size = if rng.roll(8) == 0 { extreme(rng) } else { BLOCK };
        let first = descriptor(Some(device), rng, 0) << 32 | u64::from(version);
        let at = self.arena.hold(&[first, block_size, 0], rng);
        let _ = issue(control.as_raw_fd(), 1, 24, 3, at);
    }

    pub fn new_file(&mut self, control: &File) {
        let rng = &mut self.rng;
        let size = position(rng, BLOCKS);
        let flags = if rng.roll(16) == 0 { flags(rng) } else { u32::from(rng.roll(4) > 0) };
        let at = self.arena.hold(&[size, flags.into(), 0], rng);
        self.make(control, 24, at);
    }

    /// Calls `EXTMAP_FILE`, and keeps the descriptor that it returns.
    fn make(&mut self, control: &File, size: u64, at: *mut c_void) {
        let Ok(fd) = issue(control.as_raw_fd(), FILE, size, 3, at) else { return };
        // SAFETY: the descriptor was just created and has no other owner.
        let file = Arc::new(unsafe { File::from_raw_fd(fd) });
        // The kernel wrote it at an address of the arena: otherwise the call fails.
        let cookie = self.arena.word(at.wrapping_byte_add(16));
        self.keep_file(OpenFile { file, cookie });
    }

    pub fn push(&mut self, control: &File, file: Option<&OpenFile>) {
        let rng = &mut self.rng;
        let count = 1 + rng.roll(16);
        let extents: Vec<u64> = (0..count)
            .flat_map(|_| {
                let flags = if rng.roll(16) == 0 { extreme(rng) } else { rng.roll(2) };
                [position(rng, BLOCKS), position(rng, BLOCKS), length(rng), flags]
            })
            .collect();
        let at = self.arena.hold(&extents, rng) as u64;
        let count = if rng.roll(16) == 0 { extreme(rng) as u32 } else { count as u32 };
        let first = descriptor(file.map(|open| &*open.file), rng, count);
        // The extents must not be overwritten: from other memory.
        let mut words = [first, at];
        let _ = issue(control.as_raw_fd(), 3, 16, 1, words.as_mut_ptr().cast());
    }

    pub fn cut(&mut self, control: &File, file: Option<&OpenFile>) {
        let rng = &mut self.rng;
        let flags = flags(rng);
        let first = descriptor(file.map(|open| &*open.file), rng, flags);
        // Only a range has a length.
        let length = if flags & 1 == 1 || rng.roll(16) == 0 { length(rng) } else { 0 };
        let at = self.arena.hold(&[first, position(rng, BLOCKS), length], rng);
        let _ = issue(control.as_raw_fd(), 4, 24, 3, at);
        if rng.roll(4) > 0 {
            self.freed(control, file);
        }
    }

    pub fn settle(&mut self, control: &File, file: Option<&OpenFile>) {
        let rng = &mut self.rng;
        let count = flags(rng);
        let first = descriptor(file.map(|open| &*open.file), rng, count);
        let ranges = self.arena.anywhere(rng) as u64;
        let flags = if rng.roll(16) == 0 { extreme(rng) } else { rng.roll(2) };
        let at = self.arena.hold(&[first, ranges, 0, flags], rng);
        let _ = issue(control.as_raw_fd(), 5, 32, 3, at);
    }

    pub fn freed(&mut self, control: &File, file: Option<&OpenFile>) {
        let rng = &mut self.rng;
        let first = descriptor(file.map(|open| &*open.file), rng, 0);
        let at = self.arena.hold(&[first], rng);
        let _ = issue(control.as_raw_fd(), 7, 4, 1, at);
    }

    /// Replies to a request that may exist, and that another thread may be replying to.
    pub fn reply(&mut self, control: &File) {
        let rng = &mut self.rng;
        let error = if rng.roll(2) == 0 { extreme(rng) } else { 0 };
        let id = if rng.roll(4) == 0 { extreme(rng) } else { rng.roll(100) };
        let at = self.arena.hold(&[id, error], rng);
        let _ = issue(control.as_raw_fd(), 6, 16, 1, at);
    }

    /// Reads a request and does not reply to it: whoever waits for it waits until the connection ends, or it is killed.
    pub fn read_request(&mut self, control: &File) {
        if self.rng.roll(4) > 0 {
            return;
        }
        let (at, length) = (self.arena.anywhere(&mut self.rng), self.rng.roll(64) as usize);
        // SAFETY: the kernel writes only to the arena.
        unsafe { libc::read(control.as_raw_fd(), at, length) };
    }

    /// Makes a call with any number, size and argument.
    pub fn garbage(&mut self, control: &File) {
        let rng = &mut self.rng;
        let number = match rng.roll(4) {
            0 => extreme(rng) & 0xff,
            _ => rng.roll(10),
        };
        let (size, direction) = (rng.roll(64), rng.roll(4));
        let words: Vec<u64> =
            (0..8).map(|_| if rng.roll(2) == 0 { extreme(rng) } else { rng.roll(64) }).collect();
        let at = self.arena.hold(&words, rng);
        match number {
            FILE => self.make(control, size, at),
            _ => drop(issue(control.as_raw_fd(), number, size, direction, at)),
        }
    }

    /// Makes one call of a file.
    pub fn use_file(&mut self, open: &OpenFile) {
        let offset = position(&mut self.rng, BLOCKS) as i64;
        let size = length(&mut self.rng).min(32 * BLOCK) as usize;
        let (buffer, size) = self.arena.aligned(size);
        let fd = open.file.as_raw_fd();
        // SAFETY: the kernel accesses at most `size` bytes of the arena, and the descriptor is open.
        unsafe {
            match self.rng.roll(16) {
                0..=2 => drop(libc::pread(fd, buffer, size, offset)),
                3..=5 => drop(libc::pwrite(fd, buffer, size, offset)),
                6 => drop(libc::lseek(fd, offset, libc::SEEK_HOLE)),
                7 => drop(libc::lseek(fd, offset, libc::SEEK_DATA)),
                8 => drop(libc::fsync(fd)),
                9 => drop(libc::sync_file_range(fd, offset, size as i64, 7)),
                10 => drop(libc::posix_fadvise(fd, offset, size as i64, libc::POSIX_FADV_DONTNEED)),
                11 => drop(libc::ftruncate(fd, offset)),
                12 => self.reopen(open),
                13 => self.fiemap(fd, offset),
                14 => self.map(open, offset),
                _ => self.killed_write(fd, offset, size),
            }
        }
    }

    /// Opens a file once more, for direct I/O or for writing, whether or not it is writable.
    fn reopen(&mut self, open: &OpenFile) {
        let flags = if self.rng.roll(4) > 0 { libc::O_DIRECT } else { libc::O_SYNC };
        let path = format!("/proc/self/fd/{}", open.file.as_raw_fd());
        let again =
            File::options().read(true).write(self.rng.roll(2) == 0).custom_flags(flags).open(path).ok();
        if let Some(file) = again {
            self.keep_file(OpenFile { file: Arc::new(file), cookie: open.cookie });
        }
    }

    fn fiemap(&mut self, fd: i32, offset: i64) {
        /// `FS_IOC_FIEMAP`.
        const FIEMAP: libc::Ioctl = 0xc020_660b;
        let rng = &mut self.rng;
        // struct fiemap: start, length, flags and mapped extents, capacity, and then the extents.
        let words = [offset.cast_unsigned(), extreme(rng), rng.roll(2), rng.roll(32)];
        let (at, _) = self.arena.aligned(0);
        // SAFETY: the kernel reads the words, and writes 32 extents of 56 bytes at most, within the arena.
        unsafe {
            at.cast::<u64>().copy_from_nonoverlapping(words.as_ptr(), words.len());
            libc::ioctl(fd, FIEMAP, at);
        }
    }

    /// Writes to a mapping. Page faults wait for blocks with a lock of the process's memory, which all threads here need.
    fn map(&mut self, open: &OpenFile, offset: i64) {
        let offset = offset.cast_unsigned() & !(BLOCK - 1);
        let pages = [0; 4].map(|_| self.rng.roll(16) as usize * BLOCK as usize);
        let zeros = File::open("/dev/zero").unwrap();
        self.in_child(|| {
            let (access, length) = (ProtFlags::READ | ProtFlags::WRITE, 16 * BLOCK as usize);
            // SAFETY: a new mapping that only the kernel accesses. It fails with EFAULT where a program would get SIGBUS.
            unsafe {
                let at = mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, &open.file, offset);
                let Ok(at) = at else { return };
                for page in pages {
                    libc::read(zeros.as_raw_fd(), at.byte_add(page), BLOCK as usize);
                }
            }
        });
    }

    fn killed_write(&mut self, fd: i32, offset: i64, size: usize) {
        let (buffer, size) = self.arena.aligned(size);
        self.in_child(|| {
            // SAFETY: the kernel reads at most `size` bytes of the arena.
            unsafe { libc::pwrite(fd, buffer, size, offset) };
        });
    }

    /// Makes system calls in another process, which is killed meanwhile.
    fn in_child(&mut self, calls: impl FnOnce()) {
        // SAFETY: the child makes only system calls; nothing else is safe after a fork of one thread among several.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
            if child == 0 {
                calls();
                libc::_exit(0);
            }
            std::thread::sleep(Duration::from_micros(self.rng.roll(5000)));
            libc::kill(child, libc::SIGKILL);
            assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
        }
    }
}
