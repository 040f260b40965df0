//! Files that are read and written without having been opened.
//!
//! A kernel that was told so once (ENOSYS to OPEN) sends neither OPEN nor RELEASE: each request names the inode alone.
//! The descriptors used lately are kept, so that the next request finds its file open.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::fd_cache::FdCache;
use super::{Found, Lower, Opening};

/// Descriptors by inode, for reading and for both.
pub(super) struct Unopened {
    readers: FdCache,
    writers: FdCache,
}

impl Unopened {
    /// Keeps about `room` descriptors.
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
        // What was written lately is likely to be written again, and read.
        self.writers.get(node).or_else(|| if write { None } else { self.readers.get(node) })
    }

    fn put(&self, node: NodeId, write: bool, file: &Arc<OwnedFd>) {
        let cache = if write { &self.writers } else { &self.readers };
        cache.put(node, file.clone());
    }
}

impl Lower {
    /// A regular file to read from, or to read from and `write` to.
    ///
    /// # Errors
    /// Those of `open(2)`; EWOULDBLOCK while somebody holds a lease on the file; ENXIO for what is no regular file.
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

    /// Keeps the descriptor of a file just made, which nobody will release.
    pub fn keep_unopened(&self, found: &Found, opening: Opening) {
        self.close(opening.handle);
        let file = &opening.file.file;
        if found.stat.stx_nlink == 0 {
            // No name leads to it.
            self.hold_inode(file.as_fd());
            self.nameless.put(found.id, file.clone());
        }
        // One that is open for writing only is of no use to readers.
        let both =
            rustix::fs::fcntl_getfl(file.as_fd()).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR);
        if both {
            self.keep(found.id, true, file);
        }
    }

    fn keep(&self, id: NodeId, write: bool, file: &Arc<OwnedFd>) {
        self.unopened.put(id, write, file);
        // A FORGET in between would leave it open with nobody to let go of it.
        if self.nodes.get(id).is_err() {
            self.unopened.forget(id);
        }
    }
}
