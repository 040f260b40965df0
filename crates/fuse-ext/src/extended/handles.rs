//! Requests on files that the program opened: the daemon opens such a file for the duration of one request.

use shunt_fuse::{Errno, FileHandle, FileSystem, NodeId, OpenArgs, ReleaseArgs, Request};

use super::Extended;
use crate::builtin::KERNEL_HANDLE;

/// `O_RDONLY | O_LARGEFILE`: the program opens for reading only.
const READ_ONLY_FLAGS: u32 = 0o100_000;

impl<F: FileSystem> Extended<F> {
    /// Returns the handle by which the file system knows an open file, or `None` for one that the program opened.
    pub(super) fn own(handle: Option<FileHandle>) -> Option<FileHandle> {
        handle.filter(|handle| *handle != KERNEL_HANDLE)
    }

    /// Calls `work` with a handle that the file system knows.
    pub(super) async fn on_file<T>(
        &self,
        request: &Request<'_>,
        node: NodeId,
        handle: FileHandle,
        work: impl AsyncFnOnce(FileHandle) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if handle != KERNEL_HANDLE {
            return work(handle).await;
        }
        let opened =
            self.inner.open(request, node, OpenArgs { flags: READ_ONLY_FLAGS, kill_suidgid: false }).await?;
        let done = work(opened.handle).await;
        let ended = ReleaseArgs { handle: opened.handle, flags: READ_ONLY_FLAGS, flock_owner: None };
        self.inner.release(request, node, ended).await.ok();
        done
    }
}
