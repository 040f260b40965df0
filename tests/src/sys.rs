//! System calls for which rustix has no safe interface.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// A shared mapping of a file, unmapped when dropped.
#[derive(Debug)]
pub struct Shared {
    at: NonNull<u8>,
    len: usize,
}

impl Shared {
    /// Maps the first `len` bytes for reading and writing.
    pub fn new(file: &File, len: usize) -> io::Result<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel overlays nothing.
        let at = unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, file, 0) }?;
        Ok(Self { at: NonNull::new(at.cast()).expect("not null"), len })
    }

    /// Maps the first `len` bytes read-only, for [`peek`](Self::peek) only.
    pub fn read_only(file: &File, len: usize) -> io::Result<Self> {
        // SAFETY: as in `new`.
        let at = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        Ok(Self { at: NonNull::new(at.cast()).expect("not null"), len })
    }

    /// Writes dirty pages to the file.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping.
        unsafe { msync(self.at.as_ptr().cast(), self.len, MsyncFlags::SYNC) }?;
        Ok(())
    }

    /// Reads a byte that another thread or process may just have changed.
    pub fn peek(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: in bounds; volatile, because the file changes under the mapping.
        unsafe { self.at.as_ptr().add(at).read_volatile() }
    }
}

impl Deref for Shared {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped for `len` bytes as long as self lives; the tests change the file only between accesses.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl DerefMut for Shared {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and mapped for writing.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to self and has no other users.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// A page-aligned buffer for `O_DIRECT`.
#[derive(Debug)]
pub struct Aligned(Vec<u8>, usize, usize);

impl Aligned {
    /// Creates a buffer of `len` zero bytes.
    pub fn new(len: usize) -> Self {
        let store = vec![0u8; len + 4096];
        let skip = store.as_ptr().align_offset(4096);
        Self(store, skip, len)
    }
}

impl Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0[self.1..self.1 + self.2]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0[self.1..self.1 + self.2]
    }
}

/// Opens with `O_DIRECT`, for reading and writing.
pub fn open_direct(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(path)
}

/// A POSIX record lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// `F_RDLCK`
    Shared,
    /// `F_WRLCK`
    Exclusive,
    /// `F_UNLCK`
    None,
}

impl Lock {
    fn raw(self) -> libc::c_short {
        (match self {
            Self::Shared => libc::F_RDLCK,
            Self::Exclusive => libc::F_WRLCK,
            Self::None => libc::F_UNLCK,
        }) as libc::c_short
    }
}

/// Sets a lock on a range (length 0: to the end), waiting for it if asked to.
pub fn set_lock(file: &File, lock: Lock, start: i64, len: i64, wait: bool) -> io::Result<()> {
    fcntl(file, if wait { libc::F_SETLKW } else { libc::F_SETLK }, &mut range(lock, start, len))
}

/// Returns the lock that conflicts with an exclusive lock on the range: pid, start and length.
pub fn lock_holder(file: &File, start: i64, len: i64) -> io::Result<Option<(i32, i64, i64)>> {
    let mut ask = range(Lock::Exclusive, start, len);
    fcntl(file, libc::F_GETLK, &mut ask)?;
    Ok((ask.l_type != Lock::None.raw()).then_some((ask.l_pid, ask.l_start, ask.l_len)))
}

fn range(lock: Lock, start: i64, len: i64) -> libc::flock {
    libc::flock {
        l_type: lock.raw(),
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: len,
        l_pid: 0,
    }
}

fn fcntl(file: &File, what: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the file is open and the struct lives through the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), what, std::ptr::from_mut(lock)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Reports whether the running kernel is this version or newer.
pub fn kernel_has(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// A file handle as returned by `name_to_handle_at(2)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    length: u32,
    kind: i32,
    bytes: [u32; 32],
}

impl Handle {
    /// Returns the handle of a path, without following symbolic links.
    pub fn of(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mut handle = Self { length: 128, kind: 0, bytes: [0; 32] };
        let mut mount: libc::c_int = 0;
        // SAFETY: the path is a C string, the handle has the size that it states, and both live through the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                libc::AT_FDCWD,
                path.as_ptr(),
                &raw mut handle,
                &raw mut mount,
                0,
            )
        };
        if result == 0 { Ok(handle) } else { Err(io::Error::last_os_error()) }
    }

    /// Builds a handle of a FUSE file system that the file system never issued.
    pub fn forged(node: u64, generation: u32) -> Self {
        let mut bytes = [0; 32];
        bytes[..3].copy_from_slice(&[(node >> 32) as u32, node as u32, generation]);
        Self { length: 12, kind: 0x81, bytes }
    }

    /// Returns node id and generation in a handle of a FUSE file system.
    pub fn node(&self) -> (u64, u32) {
        (u64::from(self.bytes[0]) << 32 | u64::from(self.bytes[1]), self.bytes[2])
    }

    /// Returns the content in words of 32 bits.
    pub fn words(&self) -> &[u32] {
        &self.bytes[..self.length as usize / 4]
    }

    /// Opens the file. `mount` is an open file of the mount; `flags` are those of `open(2)`.
    pub fn open(&self, mount: &File, flags: i32) -> io::Result<File> {
        let flags = flags | libc::O_CLOEXEC;
        let handle = std::ptr::from_ref(self);
        // SAFETY: the handle has the layout of `struct file_handle` and the bytes that it states.
        let fd = unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), handle, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call returned a new descriptor that nothing else owns.
        Ok(unsafe { File::from_raw_fd(fd as libc::c_int) })
    }
}
