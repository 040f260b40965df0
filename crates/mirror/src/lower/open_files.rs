//! Files that callers have open.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use shunt_fuse::NodeId;
use slab::Slab;

/// An open file.
#[derive(Debug)]
pub struct OpenFile {
    /// Opened with the caller's access mode.
    pub file: Arc<OwnedFd>,
    /// The inode.
    pub node: NodeId,
    /// Open for writing.
    pub writable: bool,
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Values under numbers that the other side hands back. A number never given out is EBADF.
#[derive(Debug)]
pub struct Handles<T>(RwLock<Slab<Arc<T>>>);

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self(RwLock::new(Slab::new()))
    }
}

impl<T> Handles<T> {
    /// Keeps a value; tells its number.
    pub fn add(&self, value: Arc<T>) -> u64 {
        self.0.write().insert(value) as u64
    }

    /// The value of a number.
    ///
    /// # Errors
    /// EBADF.
    pub fn get(&self, handle: u64) -> Result<Arc<T>, Errno> {
        let handle = usize::try_from(handle).map_err(|_| Errno::BADF)?;
        self.0.read().get(handle).cloned().ok_or(Errno::BADF)
    }

    /// Takes a value out.
    pub fn remove(&self, handle: u64) -> Option<Arc<T>> {
        self.0.write().try_remove(usize::try_from(handle).ok()?)
    }

    /// Values kept.
    pub fn len(&self) -> usize {
        self.0.read().len()
    }

    /// No value is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

const SHARDS: usize = 16;

/// All open files, found by handle and by inode.
///
/// By inode, because a file without a name (deleted, or made by O_TMPFILE) can be reached by what is open only.
#[derive(Debug, Default)]
pub struct OpenFiles {
    handles: Handles<OpenFile>,
    by_node: [Mutex<HashMap<NodeId, Vec<Arc<OpenFile>>>>; SHARDS],
}

impl OpenFiles {
    fn shard(&self, node: NodeId) -> &Mutex<HashMap<NodeId, Vec<Arc<OpenFile>>>> {
        &self.by_node[node.0 as usize % SHARDS]
    }

    /// Keeps an open file; tells its handle.
    pub fn add(&self, file: Arc<OpenFile>) -> u64 {
        self.shard(file.node).lock().entry(file.node).or_default().push(file.clone());
        self.handles.add(file)
    }

    /// The file of a handle.
    ///
    /// # Errors
    /// EBADF.
    pub fn get(&self, handle: u64) -> Result<Arc<OpenFile>, Errno> {
        self.handles.get(handle)
    }

    /// The file of a handle, if it is one of this inode.
    pub fn get_of(&self, node: NodeId, handle: u64) -> Option<Arc<OpenFile>> {
        self.handles.get(handle).ok().filter(|file| file.node == node)
    }

    /// Ends a handle. The file closes once nobody uses it.
    pub fn remove(&self, handle: u64) {
        let Some(file) = self.handles.remove(handle) else { return };
        let mut shard = self.shard(file.node).lock();
        if let Some(files) = shard.get_mut(&file.node) {
            files.retain(|other| !Arc::ptr_eq(other, &file));
            if files.is_empty() {
                shard.remove(&file.node);
            }
        }
    }

    /// Any open file of an inode.
    pub fn any(&self, node: NodeId) -> Option<Arc<OpenFile>> {
        self.shard(node).lock().get(&node)?.first().cloned()
    }

    /// An open file of an inode that can write.
    pub fn writable(&self, node: NodeId) -> Option<Arc<OpenFile>> {
        self.shard(node).lock().get(&node)?.iter().find(|file| file.writable).cloned()
    }

    /// Handles in use.
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// No file is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
