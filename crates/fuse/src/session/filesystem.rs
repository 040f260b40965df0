//! The trait that a file system implements: one method for each FUSE operation, all with a default.

use std::ffi::CStr;
use std::future::{Future, ready};

use rustix::io::Errno;

use super::Handle;
use super::Request;
use crate::api::*;
use crate::id::*;
use crate::transport::payload::*;

/// The future of an operation's reply.
///
/// A handler that is ready at once is replied to at once, on the thread that read the request. A handler that waits releases the
/// thread and is resumed on another one.
pub trait Answer<T>: Future<Output = Result<T, Errno>> + Send {}
impl<T, F: Future<Output = Result<T, Errno>> + Send> Answer<T> for F {}

macro_rules! operations {
    ($($(#[$meta:meta])* $name:ident($($arg:ident: $type:ty),* $(,)?) -> $answer:ty = $default:expr;)*) => {
        /// A file system.
        ///
        /// Every operation has a default: one that is not implemented fails with the errno that POSIX assigns to "not supported
        /// by this file system". ENOSYS is special: for optional operations the kernel caches it for the life of the mount and
        /// sends no further request, which is the cheapest reply and a trap if given by accident. The documentation of each
        /// operation states the effect of ENOSYS where it matters.
        ///
        /// Handlers may be `async fn`. They may also block (on a slow disk): the session adds a thread when all are busy.
        pub trait FileSystem: Send + Sync + 'static {
            /// Called once, after negotiation and before the first request.
            ///
            /// # Errors
            /// An error ends the session before its first request.
            fn start(&self, session: &Handle) -> std::io::Result<()> {
                let _ = session;
                Ok(())
            }

            /// The kernel dropped `lookups` references to `node`. When all are dropped the id may be reused.
            fn forget(&self, node: NodeId, lookups: u64) {
                let _ = (node, lookups);
            }

            /// The last call of a session, after the unmount. The kernel sends DESTROY for block devices only (`fuseblk`); for
            /// all other mounts the session makes the call when it ends.
            fn destroy(&self) {}

            $($(#[$meta])*
            fn $name(&self, request: &Request<'_>, $($arg: $type),*) -> impl Answer<$answer> {
                let _ = (request, $(&$arg),*);
                ready($default)
            })*
        }
    };
}

operations! {
    /// Looks up `name` in the directory `parent`.
    lookup(parent: NodeId, name: Name<'_>) -> Entry = Err(Errno::NOENT);

    /// `stat`. `handle` is set where the caller has the file open.
    getattr(node: NodeId, handle: Option<FileHandle>) -> (Attributes, Expiry) = Err(Errno::NOSYS);

    /// `statx`: sent only for attributes that `getattr` cannot return (btime). ENOSYS: the kernel uses `getattr` from then on.
    statx(node: NodeId, handle: Option<FileHandle>, mask: u32) -> StatxReply = Err(Errno::NOSYS);

    /// Changes attributes: chmod, chown, truncate, utimens. Returns the new ones.
    setattr(node: NodeId, set: &SetAttributes) -> (Attributes, Expiry) = Err(Errno::PERM);

    /// Returns the target of a symbolic link.
    readlink(node: NodeId) -> Vec<u8> = Err(Errno::INVAL);

    /// Makes a symbolic link.
    symlink(parent: NodeId, name: Name<'_>, target: &CStr) -> Entry = Err(Errno::PERM);

    /// Makes a file, pipe, socket or device.
    mknod(parent: NodeId, name: Name<'_>, new: NewNode) -> Entry = Err(Errno::PERM);

    /// Makes a directory.
    mkdir(parent: NodeId, name: Name<'_>, new: NewNode) -> Entry = Err(Errno::PERM);

    /// Removes a name that is not a directory.
    unlink(parent: NodeId, name: Name<'_>) -> () = Err(Errno::PERM);

    /// Removes an empty directory.
    rmdir(parent: NodeId, name: Name<'_>) -> () = Err(Errno::PERM);

    /// `renameat2`. Flags that are not supported get EINVAL.
    rename(parent: NodeId, name: Name<'_>, new_parent: NodeId, new_name: Name<'_>, flags: RenameFlags) -> ()
        = Err(Errno::PERM);

    /// Makes a hard link to `node`. ENOSYS: cached, and callers get EPERM.
    link(node: NodeId, new_parent: NodeId, new_name: Name<'_>) -> Entry = Err(Errno::PERM);

    /// Opens a file. ENOSYS: the kernel sends no OPEN or RELEASE for files any more, handles are 0, and all I/O is cached.
    open(node: NodeId, args: OpenArgs) -> Opened = Ok(Opened::cached(FileHandle(0)));

    /// Makes and opens a file in one step. ENOSYS: the kernel uses `mknod` and `open` from then on.
    create(parent: NodeId, name: Name<'_>, args: CreateArgs) -> Created = Err(Errno::NOSYS);

    /// Makes a file without a name (O_TMPFILE). ENOSYS: cached, and callers get EOPNOTSUPP.
    tmpfile(parent: NodeId, args: CreateArgs) -> Created = Err(Errno::NOSYS);

    /// Reads a file.
    read(node: NodeId, args: ReadArgs) -> Data<'_> = Err(Errno::INVAL);

    /// Writes a file and returns the number of bytes written. On a short write, callers to which no count can be returned (the
    /// kernel's write-back, a direct write) get ENOSPC.
    write(node: NodeId, args: WriteArgs, data: WriteData<'_>) -> usize = Err(Errno::INVAL);

    /// Called at each close of a descriptor, so possibly several times per open file: report errors of earlier writes and release
    /// the owner's POSIX locks. ENOSYS: not sent again, so POSIX locks that the server keeps would leak.
    flush(node: NodeId, handle: FileHandle, owner: LockOwner) -> () = Ok(());

    /// Called after the last descriptor is closed. The kernel does not wait for the reply.
    release(node: NodeId, args: ReleaseArgs) -> () = Ok(());

    /// Makes data durable, and attributes too unless `data_only`. ENOSYS: success, not sent again.
    fsync(node: NodeId, handle: FileHandle, data_only: bool) -> () = Err(Errno::NOSYS);

    /// Opens a directory. ENOSYS: not sent again, handles are 0, listings are cached.
    opendir(node: NodeId, args: OpenArgs) -> Opened = Ok(Opened::cached(FileHandle(0)));

    /// Lists a directory from the cookie `offset` (0: the beginning). An empty reply means the end.
    readdir(node: NodeId, handle: FileHandle, offset: u64, out: &mut DirectoryBuffer) -> () = Err(Errno::NOTDIR);

    /// Lists a directory as `readdir` does, with a lookup of each name. Sent where `DO_READDIRPLUS` was negotiated; the kernel
    /// then cannot fall back to `readdir`.
    readdirplus(node: NodeId, handle: FileHandle, offset: u64, out: &mut DirectoryPlusBuffer) -> ()
        = Err(Errno::NOSYS);

    /// Called after the last descriptor of a directory is closed.
    releasedir(node: NodeId, args: ReleaseArgs) -> () = Ok(());

    /// Makes directory entries durable. ENOSYS: success, not sent again.
    fsyncdir(node: NodeId, handle: FileHandle, data_only: bool) -> () = Err(Errno::NOSYS);

    /// Returns file system statistics: sizes and free space.
    statfs(node: NodeId) -> StatFs = Ok(StatFs { namelen: 255, bsize: 4096, frsize: 4096, ..StatFs::default() });

    /// Sets an extended attribute. ENOSYS: callers get EOPNOTSUPP, not sent again.
    setxattr(node: NodeId, name: &CStr, value: &[u8], set: XattrSet) -> () = Err(Errno::NOSYS);

    /// Reads an extended attribute; see [`XattrReply::fit`]. ENOSYS: callers get EOPNOTSUPP, not sent again.
    getxattr(node: NodeId, name: &CStr, size: u32) -> XattrReply = Err(Errno::NOSYS);

    /// Lists extended attributes. ENOSYS: callers get EOPNOTSUPP, not sent again.
    listxattr(node: NodeId, size: u32) -> XattrReply = Err(Errno::NOSYS);

    /// Removes an extended attribute. ENOSYS: callers get EOPNOTSUPP, not sent again.
    removexattr(node: NodeId, name: &CStr) -> () = Err(Errno::NOSYS);

    /// `access(2)`, sent only without `default_permissions`. ENOSYS: the kernel allows all access from then on.
    access(node: NodeId, mask: u32) -> () = Err(Errno::NOSYS);

    /// Tests for a lock; returns the conflicting one, or an unlocked range.
    getlk(node: NodeId, args: LockArgs) -> LockRange = Err(Errno::NOSYS);

    /// Sets, or waits for, a lock.
    setlk(node: NodeId, args: LockArgs) -> () = Err(Errno::NOSYS);

    /// Maps a block of a file to a block of the device. Block devices only.
    bmap(node: NodeId, block: u64, block_size: u32) -> u64 = Err(Errno::NOSYS);

    /// Executes a device-specific command on an open file.
    ioctl(node: NodeId, args: IoctlArgs<'_>) -> IoctlReply = Err(Errno::NOTTY);

    /// Returns the events that are ready. ENOSYS: always ready, not sent again.
    poll(node: NodeId, args: PollArgs) -> u32 = Err(Errno::NOSYS);

    /// Reserves, punches, zeroes, collapses or inserts a range. ENOSYS: callers get EOPNOTSUPP, not sent again.
    fallocate(node: NodeId, args: Fallocate) -> () = Err(Errno::NOSYS);

    /// SEEK_DATA and SEEK_HOLE. ENOSYS: files have no holes, not sent again.
    lseek(node: NodeId, handle: FileHandle, offset: u64, whence: Whence) -> u64 = Err(Errno::NOSYS);

    /// Copies between two open files. ENOSYS: the kernel copies through the page cache from then on.
    copy_file_range(node_in: NodeId, node_out: NodeId, range: CopyRange) -> usize = Err(Errno::NOSYS);

    /// Makes everything durable (`syncfs`). Sent on `fuseblk` and virtiofs mounts.
    syncfs() -> () = Err(Errno::NOSYS);
}
