//! System calls that rustix does not wrap, and opening `/dev/fuse`.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::MountError;

/// `statmount` and `listmount` were added after system call numbers were unified, so these hold on every architecture but alpha.
const SYS_STATMOUNT: libc::c_long = 457;
const SYS_LISTMOUNT: libc::c_long = 458;

const STATMOUNT_MNT_BASIC: u64 = 0x2;
/// The root of the caller's mount namespace, as the parent for `listmount`.
const LSMT_ROOT: u64 = u64::MAX;

#[repr(C)]
struct MntIdReq {
    size: u32,
    spare: u32,
    mnt_id: u64,
    param: u64,
}

/// The start of `struct statmount`; the strings that may follow are never requested.
#[repr(C)]
struct StatMount {
    size: u32,
    mnt_opts: u32,
    mask: u64,
    sb_dev: [u32; 2],
    sb_magic: u64,
    sb_flags: u32,
    fs_type: u32,
    mnt_id: u64,
    mnt_parent_id: u64,
    mnt_id_old: u32,
    mnt_parent_id_old: u32,
    rest: [u64; 56],
}

/// Opens `/dev/fuse` for a new connection.
pub(super) fn open_device() -> Result<OwnedFd, MountError> {
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(
        |errno| match errno {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => MountError::NoDevice(errno.into()),
            Errno::ACCESS | Errno::PERM => MountError::DeviceDenied,
            other => MountError::Device(other.into()),
        },
    )
}

/// Returns the reusable id of a mount of this namespace, given its unique one. ENOENT if there is no such mount.
pub(super) fn old_mount_id(unique: u64) -> Result<u32, Errno> {
    let request = MntIdReq { size: 24, spare: 0, mnt_id: unique, param: STATMOUNT_MNT_BASIC };
    // SAFETY: all fields are integers, for which zero is a value.
    let mut answer: StatMount = unsafe { mem::zeroed() };
    // SAFETY: both structs live across the call; the kernel reads `size` bytes of the first and writes at most
    // the given size to the second.
    let done = unsafe {
        libc::syscall(
            SYS_STATMOUNT,
            &raw const request,
            &raw mut answer,
            size_of::<StatMount>(),
            0 as libc::c_uint,
        )
    };
    if done < 0 { Err(last_errno()) } else { Ok(answer.mnt_id_old) }
}

/// Lists the next unique ids, above `after`, of the mounts of this namespace.
pub(super) fn list_mounts(after: u64, into: &mut [u64]) -> Result<usize, Errno> {
    let request = MntIdReq { size: 24, spare: 0, mnt_id: LSMT_ROOT, param: after };
    // SAFETY: the kernel writes at most `into.len()` ids to `into`.
    let count = unsafe {
        libc::syscall(SYS_LISTMOUNT, &raw const request, into.as_mut_ptr(), into.len(), 0 as libc::c_uint)
    };
    if count < 0 { Err(last_errno()) } else { Ok(into.len().min(count as usize)) }
}

/// Makes the process ignore a signal.
pub(crate) fn ignore_signal(signal: libc::c_int) {
    // SAFETY: SIG_IGN runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Makes the program that `command` starts inherit only its standard streams.
pub(crate) fn close_all_on_exec(command: &mut Command) {
    let close = || {
        // Only marks them, because the standard library still reports a failed exec through one of them. A
        // kernel without the call (before 5.11) leaves the marks that every open here sets anyway.
        // SAFETY: integers only; nothing is closed before exec.
        unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        Ok(())
    };
    // SAFETY: between fork and exec it makes one system call and touches no memory of the parent.
    unsafe { command.pre_exec(close) };
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_struct_is_the_kernels() {
        assert_eq!(size_of::<MntIdReq>(), 24);
        assert_eq!(mem::offset_of!(StatMount, mnt_id), 40);
        assert_eq!(mem::offset_of!(StatMount, mnt_id_old), 56);
        assert_eq!(size_of::<StatMount>(), 512);
    }
}
