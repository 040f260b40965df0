//! Reading and writing files without OPEN (FUSE_NO_OPEN_SUPPORT).
//!
//! A kernel that received ENOSYS to an OPEN sends neither OPEN nor RELEASE: each request names the inode alone.
//! Recently used descriptors are cached for the next request.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::fd_cache::FdCache;
use super::{Found, Lower, Opening};

/// Cached descriptors by inode: one cache for reading, one for reading and writing.
pub(super) struct Unopened {
    readers: FdCache,
    writers: FdCache,
}

impl Unopened {
    /// Creates caches for about `room` descriptors in total.
    pub(super) fn new(room: usize) -> Self {
        Self { readers: FdCache::new(room / 2), writers: FdCache::new(room / 2) }
    }

    pub(super) fn forget(&self, node: NodeId) {
        self.readers.remove(node);
        self.writers.remove(node);
    }

    pub(super) fn len(&self) -> usize {
        self.readers.len() + self.writers.len()
    }

    fn get(&self, node: NodeId, write: bool) -> Option<Arc<OwnedFd>> {
        // A file written recently is likely to be written again, and read.
        self.writers.get(node).or_else(|| if write { None } else { self.readers.get(node) })
    }

    fn put(&self, node: NodeId, write: bool, file: &Arc<OwnedFd>) {
        let cache = if write { &self.writers } else { &self.readers };
        cache.put(node, file.clone());
    }
}

impl Lower {
    /// Returns a descriptor of a regular file for reading, or for reading and writing if `write` is set.
    ///
    /// # Errors
    /// The error of `open(2)`; EWOULDBLOCK while another process holds a lease on the file; ENXIO if it is not a
    /// regular file.
    pub fn unopened_file(&self, id: NodeId, write: bool) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(file) = self.unopened.get(id, write) {
            return Ok(file);
        }
        if self.node(id)?.kind != FileType::RegularFile {
            return Err(Errno::NXIO);
        }
        if write {
            self.writable()?;
        }
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let file = Arc::new(self.reopen(id, access | OFlags::NONBLOCK)?);
        self.keep(id, write, &file);
        Ok(file)
    }

    /// Caches the descriptor of a file just created, for which no RELEASE will arrive.
    pub fn keep_unopened(&self, found: &Found, opening: Opening) {
        self.close(opening.handle);
        let file = &opening.file.file;
        if found.stat.stx_nlink == 0 {
            // The file has no name, so only a descriptor reaches it.
            self.hold_inode(file.as_fd());
            self.nameless.put(found.id, file.clone());
        }
        // A write-only descriptor is of no use to readers.
        let both =
            rustix::fs::fcntl_getfl(file.as_fd()).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR);
        if both {
            self.keep(found.id, true, file);
        }
    }

    fn keep(&self, id: NodeId, write: bool, file: &Arc<OwnedFd>) {
        self.unopened.put(id, write, file);
        // A concurrent FORGET would leave a descriptor that nothing removes.
        if self.nodes.get(id).is_err() {
            self.unopened.forget(id);
        }
    }
}
