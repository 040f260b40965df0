//! One length per inode: the kernel keeps a single length for all opens of a file, whichever versions of it they show.
//!
//! The length of another version would make the kernel truncate the data that it reads, or fill it up with zeros, and writes
//! that build on it would replace this version. So an open waits for pending invalidations, and an operation whose result
//! depends on the length fails with ESTALE while the kernel may use that of another version.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shunt_fuse::{Errno, FileHandle, NodeId, Request};
use shunt_volume::lease::Wait;

use crate::VolumeFs;
use crate::open_file::OpenFile;
use crate::recent_invalidations::INVALIDATION_WINDOW;

/// Maximum time an open waits for pending invalidations: a page under invalidation may be waiting for a store that does not
/// reply.
const INVALIDATION_TIMEOUT: Duration = Duration::from_secs(10);

impl VolumeFs {
    /// Reports whether the file has a newer version than the open shows.
    pub(crate) fn is_stale(&self, open: &OpenFile) -> bool {
        !self.replica.is_latest(open.num, open.opened.session)
    }

    /// Returns the open behind a handle if it shows an older version of the node.
    pub(crate) fn older(&self, ino: NodeId, handle: Option<FileHandle>) -> Option<Arc<OpenFile>> {
        let open = self.files.get(handle?).ok()?;
        (open.num == ino.0 && self.is_stale(&open)).then_some(open)
    }

    /// Returns ESTALE where the kernel may use the length of another version than the one that is open: it would truncate the
    /// data read, or fill it up with zeros. The kernel ignores lengths in replies while invalidations of the file are pending.
    /// `reads`: the kernel has requested the length before, if it had to.
    pub(crate) fn check_kernel_size(
        &self,
        request: &Request<'_>,
        open: &OpenFile,
        reads: bool,
    ) -> Result<(), Errno> {
        if !open.buffered.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (invalidated, lengths) = self.versions.invalidation_state(open.num);
        let is_quiet = match invalidated {
            None => true,
            Some(ago) => {
                ago >= INVALIDATION_WINDOW && request.session().caches().settled(NodeId(open.num)).is_none()
            }
        };
        let known = lengths + 1;
        if is_quiet && reads {
            open.size_epoch.store(known, Ordering::Relaxed);
        }
        let is_known = is_quiet || open.size_epoch.load(Ordering::Relaxed) == known || !self.is_stale(open);
        if is_known { Ok(()) } else { Err(Errno::STALE) }
    }

    /// Waits until the kernel has processed the invalidations for the version that is opened. Otherwise it would show the
    /// length and the pages of an older one, and writes based on that would replace this one.
    pub(crate) async fn wait_for_invalidations(&self, request: &Request<'_>, ino: NodeId) {
        if let Some(settled) = request.session().caches().settled(ino) {
            let late = move || {
                tracing::debug!("the kernel did not process the invalidation of node {} in time", ino.0)
            };
            Wait::new(async move { settled.await.unwrap_or_default() }, INVALIDATION_TIMEOUT, late).await;
        }
    }

    /// Returns ESTALE for a file that was deleted while open for writing and restored by a remote change: the kernel knows the
    /// length of the restored file, and would show the deleted content up to that.
    pub(crate) fn ensure_not_deleted(&self, open: &OpenFile) -> Result<(), Errno> {
        if open.writes && self.is_stale(open) && self.replica.get(open.num).is_ok_and(|inode| inode.links > 0)
        {
            return Err(Errno::STALE);
        }
        Ok(())
    }
}
