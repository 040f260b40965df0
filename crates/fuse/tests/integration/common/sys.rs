//! System calls that the libraries do not wrap.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;

pub fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap()
}

/// Makes an anonymous file with these bytes.
pub fn memfd(bytes: &[u8]) -> Arc<OwnedFd> {
    let file = rustix::fs::memfd_create("shunt-test", MemfdFlags::CLOEXEC).unwrap();
    let mut done = 0;
    while done < bytes.len() {
        done += rustix::io::pwrite(&file, &bytes[done..], done as u64).unwrap();
    }
    Arc::new(file)
}

/// A shared mapping of a file.
pub struct Mapping {
    at: *mut u8,
    length: usize,
}

impl Mapping {
    pub fn new(file: &File, length: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel picks the address; the mapping is reachable through this value alone.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self { at: at.cast(), length })
        }
    }

    /// Allocates zeroed, page-aligned memory.
    pub fn anonymous(length: usize) -> Self {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: as in `new`.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Self { at: at.cast(), length }
    }

    /// Returns the bytes of a mapping that nothing else changes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the slice is the whole mapping, which lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.at, self.length) }
    }

    pub fn get(&self, index: usize) -> u8 {
        assert!(index < self.length);
        // SAFETY: within the mapping.
        unsafe { self.at.add(index).read_volatile() }
    }

    pub fn set(&self, index: usize, byte: u8) {
        assert!(index < self.length);
        // SAFETY: within the mapping.
        unsafe { self.at.add(index).write_volatile(byte) };
    }

    /// Returns the number of the file's pages in the page cache.
    pub fn cached_pages(&self) -> usize {
        let mut pages = vec![0_u8; self.length.div_ceil(4096)];
        // SAFETY: one byte a page of the mapping is written.
        let result = unsafe { libc::mincore(self.at.cast(), self.length, pages.as_mut_ptr()) };
        assert_eq!(result, 0, "mincore");
        pages.iter().filter(|page| **page & 1 == 1).count()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, unmapped once.
        unsafe { libc::munmap(self.at.cast(), self.length) };
    }
}

/// Returns the number of pages of an open file in the page cache.
pub fn cached_pages(file: &File) -> usize {
    let length = file.metadata().unwrap().len() as usize;
    // SAFETY: a mapping through which nothing is read.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    Mapping { at: at.cast(), length }.cached_pages()
}

/// Runs a call as another user, on a thread of its own. The credentials of the other threads do not change.
pub fn as_user<R: Send>(uid: u32, gid: u32, groups: &[u32], call: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                // SAFETY: the raw calls change this thread only, and read `groups` during the call.
                unsafe {
                    assert_eq!(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()), 0);
                    assert_eq!(libc::syscall(libc::SYS_setresgid, gid, gid, gid), 0);
                    assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
                }
                call()
            })
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs a call without these capabilities in the effective set, on a thread of its own.
pub fn without<R: Send>(capabilities: rustix::thread::CapabilitySet, call: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let mut sets = rustix::thread::capabilities(None).unwrap();
                sets.effective.remove(capabilities);
                rustix::thread::set_capabilities(None, sets).unwrap();
                call()
            })
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Makes a POSIX (`F_*`) lock call on the whole file.
pub fn posix_lock(file: &File, command: libc::c_int, kind: libc::c_int) -> Result<libc::flock, Errno> {
    // SAFETY: all fields are integers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as _;
    // SAFETY: the structure outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if result < 0 { Err(last_errno()) } else { Ok(lock) }
}

/// Returns the number of open file descriptors of this process.
pub fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn status(key: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Returns the resident memory in KiB.
pub fn resident_kib() -> usize {
    status("VmRSS:")
}

/// Returns the number of threads that the framework started; the test harness has others.
pub fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("shunt-")).count()
}
