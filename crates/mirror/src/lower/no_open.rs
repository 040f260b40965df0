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
pub(super) struct NoOpenFiles {
    readers: FdCache,
    writers: FdCache,
}

impl NoOpenFiles {
    /// Creates caches for about `capacity` descriptors in total.
    pub(super) fn new(capacity: usize) -> Self {
        Self { readers: FdCache::new(capacity / 2), writers: FdCache::new(capacity / 2) }
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
    pub(crate) fn no_open_file(&self, id: NodeId, write: bool) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(file) = self.no_open.get(id, write) {
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
        self.cache_fd(id, write, &file);
        Ok(file)
    }

    /// Caches the descriptor of a file just created, for which no RELEASE will arrive.
    pub(crate) fn cache_no_open_file(&self, found: &Found, opening: Opening) {
        self.close(opening.handle);
        let file = &opening.file.file;
        if found.stat.stx_nlink == 0 {
            // The file has no name, so only a descriptor reaches it.
            self.store_inode(file.as_fd());
            self.unlinked.put(found.id, file.clone());
        }
        // A write-only descriptor is of no use to readers.
        let both =
            rustix::fs::fcntl_getfl(file.as_fd()).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR);
        if both {
            self.cache_fd(found.id, true, file);
        }
    }

    fn cache_fd(&self, id: NodeId, write: bool, file: &Arc<OwnedFd>) {
        self.no_open.put(id, write, file);
        // A concurrent FORGET would leave a descriptor that nothing removes.
        if self.nodes.get(id).is_err() {
            self.no_open.forget(id);
        }
    }
}
