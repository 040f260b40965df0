//! Write-back of a file's dirty pages through the session's own mount, since the protocol has no notification for it: opens the
//! file by handle and calls `sync_file_range(2)`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::id::NodeId;

/// Opens the root of the mount. The descriptor is closed after each use: one that the server itself held would make every
/// ordinary unmount fail with EBUSY.
type OpenRoot = dyn Fn() -> std::io::Result<OwnedFd> + Send + Sync;

/// Access to the session's own mount.
#[derive(Clone)]
pub(crate) struct Mountpoint(pub(crate) Arc<OpenRoot>);

impl std::fmt::Debug for Mountpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mountpoint").finish_non_exhaustive()
    }
}

impl Mountpoint {
    pub(crate) fn write_out(&self, node: NodeId, offset: u64, length: u64) -> Result<(), Errno> {
        let root = (self.0)().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOTCONN))?;
        let file = open_node(root.as_fd(), node)?;
        sync_range(file.as_fd(), offset, length)
    }
}

/// A FUSE file handle: node id in two halves, then the generation.
#[repr(C)]
struct FuseHandle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    node_high: u32,
    node_low: u32,
    generation: u32,
}

/// `FILEID_INO64_GEN`.
const KIND: libc::c_int = 0x81;

fn open_node(root: BorrowedFd<'_>, node: NodeId) -> Result<OwnedFd, Errno> {
    let mut handle = FuseHandle {
        bytes: 12,
        kind: KIND,
        node_high: (node.0 >> 32) as u32,
        node_low: node.0 as u32,
        generation: 0,
    };
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the handle has the layout of `struct file_handle` followed by the 12 bytes it announces, and outlives
    // the call.
    let fd = unsafe { libc::syscall(libc::SYS_open_by_handle_at, root.as_raw_fd(), &raw mut handle, flags) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the call returned a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// Writes back a range of pages and waits, without FSYNC and without dropping them.
fn sync_range(file: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(), Errno> {
    let clamp = |value: u64| value.min(i64::MAX as u64) as libc::off64_t;
    let length = length.min(i64::MAX as u64 - offset.min(i64::MAX as u64));
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: no pointers are passed.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), clamp(offset), clamp(length), flags) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
