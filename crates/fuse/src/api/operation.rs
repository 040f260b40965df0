//! Arguments of operations that take more than a name.

use bitflags::bitflags;

use super::Timestamp;
use crate::id::{FileHandle, LockOwner, PollHandle};

bitflags! {
    /// Flags of `renameat2(2)`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fail with EEXIST where the new name exists.
        const NOREPLACE = 1;
        /// Swap the two names.
        const EXCHANGE = 2;
        /// Leave a whiteout at the old name.
        const WHITEOUT = 4;
        const _ = !0;
    }
}

/// Mode, umask and device number of an inode to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewNode {
    /// Type and permission bits. The umask is not yet applied where `DONT_MASK` was negotiated.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// The device number of a special file; [`decode_device`](crate::decode_device) returns its parts.
    pub rdev: u32,
}

/// Arguments of `open` and `opendir`.
#[derive(Debug, Clone, Copy)]
pub struct OpenArgs {
    /// `O_*` flags of the caller, without O_CREAT, O_EXCL and O_NOCTTY.
    pub flags: u32,
    /// With O_TRUNC: clear setuid, setgid and `security.capability` (the server's duty under HANDLE_KILLPRIV_V2).
    pub kill_suidgid: bool,
}

/// Arguments of `create` and `tmpfile`.
#[derive(Debug, Clone, Copy)]
pub struct CreateArgs {
    /// The caller's `O_*` flags.
    pub flags: u32,
    /// Type and permission bits.
    pub mode: u32,
    /// The caller's umask, not yet applied where `DONT_MASK` was negotiated.
    pub umask: u32,
    /// Clear setuid, setgid and `security.capability`, as in [`OpenArgs::kill_suidgid`].
    pub kill_suidgid: bool,
}

/// A timestamp to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The server's current time.
    Now,
    /// This time.
    At(Timestamp),
}

/// Attributes to change; `None` leaves one unchanged.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetAttributes {
    /// Permission bits (ignore the type bits).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes: truncate or extend.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the contents.
    pub mtime: Option<SetTime>,
    /// Last change of the inode: sent by a write-back cache only.
    pub ctime: Option<Timestamp>,
    /// The open file through which the caller truncates, if any.
    pub handle: Option<FileHandle>,
    /// Owner of the lock under which the file is truncated.
    pub lock_owner: Option<LockOwner>,
    /// Clear setuid, setgid and `security.capability` (the server's duty under HANDLE_KILLPRIV_V2), unless the node is a
    /// directory. Where no other attribute is set, a write is about to bypass the daemon, or a chown kept the owner.
    pub kill_suidgid: bool,
}

/// Arguments of `read`.
#[derive(Debug, Clone, Copy)]
pub struct ReadArgs {
    /// The open file.
    pub handle: FileHandle,
    /// First byte.
    pub offset: u64,
    /// Length in bytes. A shorter reply means end of file, except under direct I/O.
    pub size: u32,
    /// `O_*` flags of the open file.
    pub flags: u32,
    /// Owner of mandatory locks.
    pub lock_owner: Option<LockOwner>,
}

/// Arguments of `write`.
#[derive(Debug, Clone, Copy)]
pub struct WriteArgs {
    /// The open file. With `from_cache` it is any handle open for writing.
    pub handle: FileHandle,
    /// First byte.
    pub offset: u64,
    /// `O_*` flags of the open file.
    pub flags: u32,
    /// The write is write-back from the page cache.
    pub from_cache: bool,
    /// Clear setuid, setgid and `security.capability` (the server's duty under HANDLE_KILLPRIV_V2).
    pub kill_suidgid: bool,
    /// Owner of mandatory locks.
    pub lock_owner: Option<LockOwner>,
}

/// Arguments of `release` and `releasedir`.
#[derive(Debug, Clone, Copy)]
pub struct ReleaseArgs {
    /// The open file; no later request carries this handle.
    pub handle: FileHandle,
    /// `O_*` flags of the open file.
    pub flags: u32,
    /// Set where the release also drops a flock of this owner.
    pub flock_owner: Option<LockOwner>,
}

/// Arguments of `setxattr`.
#[derive(Debug, Clone, Copy)]
pub struct XattrSet {
    /// `XATTR_CREATE` (1), `XATTR_REPLACE` (2) or 0.
    pub flags: u32,
    /// A caller outside the file's group sets an ACL: clear setgid.
    pub acl_kill_sgid: bool,
}

/// The type of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockType {
    /// A shared lock.
    Read,
    /// An exclusive lock.
    Write,
    /// No lock.
    Unlock,
}

/// A byte range under a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `u64::MAX >> 1` means end of file.
    pub end: u64,
    /// The lock's type.
    pub kind: LockType,
    /// The process id of the owner.
    pub pid: u32,
}

/// The family of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// `fcntl` byte-range locks.
    Posix,
    /// `flock(2)`.
    Flock,
}

/// Arguments of `getlk` and `setlk`.
#[derive(Debug, Clone, Copy)]
pub struct LockArgs {
    /// The open file.
    pub handle: FileHandle,
    /// The owner of the lock.
    pub owner: LockOwner,
    /// The byte range and type of the lock.
    pub range: LockRange,
    /// The family.
    pub kind: LockKind,
    /// Wait until the lock is free (SETLKW).
    pub wait: bool,
}

/// Arguments of `fallocate`.
#[derive(Debug, Clone, Copy)]
pub struct Fallocate {
    /// The open file.
    pub handle: FileHandle,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// `FALLOC_FL_*` flags.
    pub mode: u32,
}

/// Arguments of `lseek`; the kernel sends SEEK_DATA and SEEK_HOLE only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// The next byte of data.
    Data,
    /// The next hole.
    Hole,
}

/// Arguments of `copy_file_range`.
#[derive(Debug, Clone, Copy)]
pub struct CopyRange {
    /// The file to read.
    pub handle_in: FileHandle,
    /// Its first byte.
    pub offset_in: u64,
    /// The file to write.
    pub handle_out: FileHandle,
    /// Its first byte.
    pub offset_out: u64,
    /// Length in bytes.
    pub length: u64,
    /// Flags (none are defined).
    pub flags: u64,
}

/// Arguments of `ioctl`. The kernel sends restricted ioctls only: sizes follow from the command's number.
#[derive(Debug, Clone, Copy)]
pub struct IoctlArgs<'a> {
    /// The open file or directory.
    pub handle: FileHandle,
    /// The command.
    pub command: u32,
    /// The caller's argument as a number.
    pub argument: u64,
    /// Bytes copied from the caller.
    pub data: &'a [u8],
    /// Maximum number of bytes to return to the caller.
    pub out_size: u32,
    /// The handle is a directory.
    pub directory: bool,
    /// The caller is a 32-bit process.
    pub compat: bool,
}

/// Arguments of `poll`.
#[derive(Debug, Clone, Copy)]
pub struct PollArgs {
    /// The open file.
    pub handle: FileHandle,
    /// `POLL*` events to test for.
    pub events: u32,
    /// Set where the kernel expects a `Caches::poll_ready` once the file becomes ready.
    pub notify: Option<PollHandle>,
}
