//! Safe wrappers of system calls that `rustix` lacks.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

use shunt_fuse::mount::Atime;

use super::read_times::ReadTimes;

pub(super) fn check(result: libc::c_long) -> Result<libc::c_long, Errno> {
    if result >= 0 {
        return Ok(result);
    }
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Err(Errno::from_raw_os_error(errno))
}

/// `MAX_HANDLE_SZ`: the largest file handle of any file system.
pub(crate) const MAX_HANDLE_BYTES: usize = 128;

/// `struct file_handle` with space for the largest handle.
#[repr(C)]
pub(crate) struct RawHandle {
    len: u32,
    kind: i32,
    bytes: [u8; MAX_HANDLE_BYTES],
}

impl RawHandle {
    pub(crate) fn new(kind: i32, handle: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_HANDLE_BYTES];
        bytes.get_mut(..handle.len())?.copy_from_slice(handle);
        Some(Self { len: handle.len() as u32, kind, bytes })
    }

    pub(crate) fn kind(&self) -> i32 {
        self.kind
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..MAX_HANDLE_BYTES.min(self.len as usize)]
    }
}

/// Calls `name_to_handle_at(2)` on an open file (O_PATH suffices).
pub(crate) fn name_to_handle(fd: BorrowedFd<'_>) -> Result<RawHandle, Errno> {
    let mut handle = RawHandle { len: MAX_HANDLE_BYTES as u32, kind: 0, bytes: [0; MAX_HANDLE_BYTES] };
    let mut mount_id: libc::c_int = 0;
    // SAFETY: `handle` has the layout of `struct file_handle`, followed by the space that `len` states; both pointers
    // live through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            fd.as_raw_fd(),
            c"".as_ptr(),
            &raw mut handle,
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    check(result)?;
    Ok(handle)
}

/// Calls `open_by_handle_at(2)`. `mount` is any open file (not O_PATH) of the mount.
pub(crate) fn open_by_handle(
    mount: BorrowedFd<'_>,
    handle: &RawHandle,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = (flags | OFlags::CLOEXEC).bits() as libc::c_int;
    // SAFETY: `handle` has the layout of `struct file_handle`, and `len` never exceeds the space behind it.
    let fd = check(unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw const *handle, flags)
    })?;
    // SAFETY: the kernel just returned this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Calls `getdents64(2)` into the spare capacity of `buffer`, which is cleared first. 0 bytes mean the end.
pub(crate) fn getdents(dir: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> Result<usize, Errno> {
    buffer.clear();
    let spare: &mut [MaybeUninit<u8>] = buffer.spare_capacity_mut();
    let room = spare.len().min(i32::MAX as usize);
    // SAFETY: the kernel writes at most `room` bytes behind the pointer.
    let got =
        check(unsafe { libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), spare.as_mut_ptr(), room) })?;
    // SAFETY: the kernel wrote this many bytes.
    unsafe { buffer.set_len(got as usize) };
    Ok(got as usize)
}

/// Attributes to set on a detached mount tree, which also becomes private.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Settling<'a> {
    pub(super) set: u64,
    pub(super) clear: u64,
    /// The user namespace that maps ids.
    pub(super) users: Option<BorrowedFd<'a>>,
}

impl Settling<'_> {
    /// Attributes of the daemon's clone of the source: devices, programs and set-user-ID bits in it have no effect for
    /// a process that opens files there. In the mount itself they work, subject to its own options.
    pub(super) fn source(read_only: bool, read_times: ReadTimes) -> Self {
        let inert = libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
        let atime = match read_times.atime {
            None | Some(Atime::Relative) => libc::MOUNT_ATTR_RELATIME,
            Some(Atime::Never) => libc::MOUNT_ATTR_NOATIME,
            Some(Atime::Strict) => libc::MOUNT_ATTR_STRICTATIME,
        };
        let flags = [
            (read_only, libc::MOUNT_ATTR_RDONLY),
            (read_times.nodiratime, libc::MOUNT_ATTR_NODIRATIME),
            (read_times.atime.is_some(), atime),
        ];
        let set = flags.iter().filter(|(on, _)| *on).fold(inert, |set, (_, flag)| set | flag);
        let clear = if read_times.atime.is_some() { libc::MOUNT_ATTR__ATIME } else { 0 };
        Self { set, clear, ..Self::default() }
    }

    /// Attributes at least as strict as the given options of the mount table. Stricter attributes of the tree stay.
    pub(super) fn by_options(options: &str) -> Self {
        let mut settling = Self::default();
        for option in options.split(',') {
            settling.set |= match option {
                "ro" => libc::MOUNT_ATTR_RDONLY,
                "nosuid" => libc::MOUNT_ATTR_NOSUID,
                "nodev" => libc::MOUNT_ATTR_NODEV,
                "noexec" => libc::MOUNT_ATTR_NOEXEC,
                "nosymfollow" => libc::MOUNT_ATTR_NOSYMFOLLOW,
                "nodiratime" => libc::MOUNT_ATTR_NODIRATIME,
                "noatime" => {
                    settling.clear = libc::MOUNT_ATTR__ATIME;
                    libc::MOUNT_ATTR_NOATIME
                }
                _ => 0,
            };
        }
        settling
    }
}

/// Applies the attributes to a detached mount tree.
pub(super) fn settle(tree: BorrowedFd<'_>, settling: &Settling<'_>) -> Result<(), Errno> {
    let mapped = if settling.users.is_some() { libc::MOUNT_ATTR_IDMAP } else { 0 };
    let attributes = libc::mount_attr {
        attr_set: settling.set | mapped,
        attr_clr: settling.clear,
        propagation: libc::MS_PRIVATE,
        userns_fd: settling.users.map_or(0, |users| users.as_raw_fd() as u64),
    };
    // SAFETY: `attributes` is a `struct mount_attr` of the stated size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    check(result).map(drop)
}

/// Sets this thread's file-system user id. Returns `false` if the kernel rejected it.
pub(crate) fn set_fsuid(uid: u32) -> bool {
    // SAFETY: these calls take numbers only. An invalid id (-1) changes nothing and returns the id in force.
    unsafe {
        libc::syscall(libc::SYS_setfsuid, uid);
        libc::syscall(libc::SYS_setfsuid, u32::MAX) as u32 == uid
    }
}

/// Sets this thread's file-system group id. Returns `false` if the kernel rejected it.
pub(crate) fn set_fsgid(gid: u32) -> bool {
    // SAFETY: as in `set_fsuid`.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsgid, u32::MAX) as u32 == gid
    }
}

/// Gives this thread its own working directory, root and umask.
pub(crate) fn unshare_fs() -> Result<(), Errno> {
    // SAFETY: only what CLONE_FS covers is unshared; no descriptor changes its meaning.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }
}

/// Largest argument in bytes of an ioctl that is passed through (`struct fsxattr` has 28 bytes).
pub(crate) const MAX_IOCTL_BYTES: usize = 32;

/// Calls an ioctl whose argument is a buffer of at most [`MAX_IOCTL_BYTES`] bytes; `command` must be one of those.
pub(crate) fn ioctl_buffer(
    fd: BorrowedFd<'_>,
    command: u32,
    buffer: &mut [u64; MAX_IOCTL_BYTES / 8],
) -> Result<i32, Errno> {
    // SAFETY: the caller passes only commands whose argument fits into the buffer, which is aligned for all.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), command as libc::Ioctl, buffer.as_mut_ptr()) };
    check(result.into()).map(|result| result as i32)
}

/// The path of an open file under `/proc`, for calls that take only paths. It resolves to the inode itself, even for a
/// symlink.
pub(crate) struct ProcPath([u8; 32]);

impl ProcPath {
    pub(crate) fn new(fd: impl AsFd) -> Self {
        use std::io::Write;
        let mut path = [0; 32];
        // "/proc/self/fd/" and ten digits: always fits, and leaves a NUL.
        let _ = write!(&mut path[..31], "/proc/self/fd/{}", fd.as_fd().as_raw_fd());
        Self(path)
    }

    pub(crate) fn as_cstr(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

/// Closes a descriptor and returns the result of `close(2)`.
pub(crate) fn close(fd: OwnedFd) -> Result<(), Errno> {
    use std::os::fd::IntoRawFd;
    // SAFETY: we own the descriptor and it is not used afterwards: it is closed whatever the result.
    check(unsafe { libc::close(fd.into_raw_fd()) }.into()).map(drop)
}
