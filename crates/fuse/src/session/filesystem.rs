//! The trait that a file system implements.

use std::ffi::CStr;
use std::future::{Future, ready};

use rustix::io::Errno;

use super::Handle;
use super::Request;
use crate::api::*;
use crate::id::*;
use crate::transport::payload::*;

/// The answer of an operation, now or later.
///
/// A handler that is ready at once is answered at once, on the thread that read the request. One that waits gives the
/// thread back and is resumed elsewhere.
pub trait Answer<T>: Future<Output = Result<T, Errno>> + Send {}
impl<T, F: Future<Output = Result<T, Errno>> + Send> Answer<T> for F {}

macro_rules! operations {
    ($($(#[$meta:meta])* $name:ident($($arg:ident: $type:ty),* $(,)?) -> $answer:ty = $default:expr;)*) => {
        /// A file system.
        ///
        /// Every operation has a default that is honest: what is not implemented says so with the errno that POSIX
        /// gives to "this file system cannot do that". ENOSYS is special: for optional operations the kernel
        /// remembers it for the life of the mount and does not ask again, which is the cheapest answer there is, and a
        /// trap if given by accident. Each operation says what ENOSYS means to it where that matters.
        ///
        /// Handlers may be `async fn`. They may also block (a slow disk): the session adds a thread when all are busy.
        pub trait FileSystem: Send + Sync + 'static {
            /// Called once, after negotiation and before the first request.
            ///
            /// # Errors
            /// An error ends the session before it began.
            fn start(&self, session: &Handle) -> std::io::Result<()> {
                let _ = session;
                Ok(())
            }

            /// The kernel dropped `lookups` references to `node`. When all are gone the id may be reused.
            fn forget(&self, node: NodeId, lookups: u64) {
                let _ = (node, lookups);
            }

            /// The last request of a session: the mount is gone. Block devices only (`fuseblk`); the session calls it
            /// itself at its end everywhere else.
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
    /// Finds `name` in the directory `parent`.
    lookup(parent: NodeId, name: Name<'_>) -> Entry = Err(Errno::NOENT);

    /// `stat`. `handle` is set where the caller has the file open.
    getattr(node: NodeId, handle: Option<FileHandle>) -> (Attributes, Expiry) = Err(Errno::NOSYS);

    /// `statx`: sent only for what `getattr` cannot say (btime). ENOSYS: use `getattr` from now on.
    statx(node: NodeId, handle: Option<FileHandle>, mask: u32) -> StatxReply = Err(Errno::NOSYS);

    /// Changes attributes: chmod, chown, truncate, utimens. Answers with the new ones.
    setattr(node: NodeId, set: &SetAttributes) -> (Attributes, Expiry) = Err(Errno::PERM);

    /// The target of a symbolic link.
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

    /// Makes a hard link to `node`. ENOSYS: remembered, callers see EPERM.
    link(node: NodeId, new_parent: NodeId, new_name: Name<'_>) -> Entry = Err(Errno::PERM);

    /// Opens a file. ENOSYS: no file is ever opened or released again, handles are 0, everything is cached.
    open(node: NodeId, args: OpenArgs) -> Opened = Ok(Opened::cached(FileHandle(0)));

    /// Makes and opens a file in one step. ENOSYS: `mknod` and `open` are used from now on.
    create(parent: NodeId, name: Name<'_>, args: CreateArgs) -> Created = Err(Errno::NOSYS);

    /// Makes a file without a name (O_TMPFILE). ENOSYS: remembered, callers see EOPNOTSUPP.
    tmpfile(parent: NodeId, args: CreateArgs) -> Created = Err(Errno::NOSYS);

    /// Reads a file.
    read(node: NodeId, args: ReadArgs) -> Data<'_> = Err(Errno::INVAL);

    /// Writes a file; answers how many bytes were taken. Where they are fewer than all, a caller who cannot be told how many
    /// (the kernel's write-back, a direct write) gets ENOSPC.
    write(node: NodeId, args: WriteArgs, data: WriteData<'_>) -> usize = Err(Errno::INVAL);

    /// A descriptor is closed: report errors of earlier writes, end the owner's POSIX locks. One open file may see
    /// several. ENOSYS: never sent again, so POSIX locks that the server keeps would leak.
    flush(node: NodeId, handle: FileHandle, owner: LockOwner) -> () = Ok(());

    /// The last descriptor is gone. Nobody waits for the answer.
    release(node: NodeId, args: ReleaseArgs) -> () = Ok(());

    /// Makes data durable, and attributes too unless `data_only`. ENOSYS: success, never sent again.
    fsync(node: NodeId, handle: FileHandle, data_only: bool) -> () = Err(Errno::NOSYS);

    /// Opens a directory. ENOSYS: never sent again, handles are 0, listings are cached.
    opendir(node: NodeId, args: OpenArgs) -> Opened = Ok(Opened::cached(FileHandle(0)));

    /// Lists a directory from the cookie `offset` (0: the beginning). Nothing added means the end.
    readdir(node: NodeId, handle: FileHandle, offset: u64, out: &mut DirectoryBuffer) -> () = Err(Errno::NOTDIR);

    /// As `readdir`, and each name is looked up. Sent where `DO_READDIRPLUS` was negotiated; the kernel then has no way
    /// back to `readdir`.
    readdirplus(node: NodeId, handle: FileHandle, offset: u64, out: &mut DirectoryPlusBuffer) -> ()
        = Err(Errno::NOSYS);

    /// The last descriptor of a directory is gone.
    releasedir(node: NodeId, args: ReleaseArgs) -> () = Ok(());

    /// Makes names durable. ENOSYS: success, never sent again.
    fsyncdir(node: NodeId, handle: FileHandle, data_only: bool) -> () = Err(Errno::NOSYS);

    /// Free space.
    statfs(node: NodeId) -> StatFs = Ok(StatFs { namelen: 255, bsize: 4096, frsize: 4096, ..StatFs::default() });

    /// Sets an extended attribute. ENOSYS: callers see EOPNOTSUPP, never sent again.
    setxattr(node: NodeId, name: &CStr, value: &[u8], set: XattrSet) -> () = Err(Errno::NOSYS);

    /// Reads an extended attribute; see [`XattrReply::fit`]. ENOSYS: callers see EOPNOTSUPP, never sent again.
    getxattr(node: NodeId, name: &CStr, size: u32) -> XattrReply = Err(Errno::NOSYS);

    /// Lists extended attributes. ENOSYS: as for `getxattr`.
    listxattr(node: NodeId, size: u32) -> XattrReply = Err(Errno::NOSYS);

    /// Removes an extended attribute. ENOSYS: as for `setxattr`.
    removexattr(node: NodeId, name: &CStr) -> () = Err(Errno::NOSYS);

    /// `access(2)`, sent only without `default_permissions`. ENOSYS: everything is allowed from now on.
    access(node: NodeId, mask: u32) -> () = Err(Errno::NOSYS);

    /// Tests for a lock; answers the one in the way, or an unlocked range.
    getlk(node: NodeId, args: LockArgs) -> LockRange = Err(Errno::NOSYS);

    /// Sets, or waits for, a lock.
    setlk(node: NodeId, args: LockArgs) -> () = Err(Errno::NOSYS);

    /// The device block of a file block. Block devices only.
    bmap(node: NodeId, block: u64, block_size: u32) -> u64 = Err(Errno::NOSYS);

    /// A device-like command on an open file.
    ioctl(node: NodeId, args: IoctlArgs<'_>) -> IoctlReply = Err(Errno::NOTTY);

    /// Which events are ready. ENOSYS: always ready, never sent again.
    poll(node: NodeId, args: PollArgs) -> u32 = Err(Errno::NOSYS);

    /// Reserves, punches, zeroes, collapses or inserts a range. ENOSYS: callers see EOPNOTSUPP, never sent again.
    fallocate(node: NodeId, args: Fallocate) -> () = Err(Errno::NOSYS);

    /// SEEK_DATA and SEEK_HOLE. ENOSYS: files have no holes, never sent again.
    lseek(node: NodeId, handle: FileHandle, offset: u64, whence: Whence) -> u64 = Err(Errno::NOSYS);

    /// Copies between two open files. ENOSYS: the kernel copies through the page cache from now on.
    copy_file_range(node_in: NodeId, node_out: NodeId, range: CopyRange) -> usize = Err(Errno::NOSYS);

    /// Makes everything durable (`syncfs`). Sent on `fuseblk` and virtiofs mounts.
    syncfs() -> () = Err(Errno::NOSYS);
}
