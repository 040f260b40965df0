//! The table of open files, by handle and by inode.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use shunt_fuse::NodeId;
use shunt_sharded::Sharded;
use slab::Slab;

use super::shares::Share;

/// An open file.
#[derive(Debug)]
pub struct OpenFile {
    /// The descriptor, opened with the caller's access mode.
    pub file: Arc<OwnedFd>,
    /// Its inode.
    pub node: NodeId,
    /// The descriptor is open for writing.
    pub writable: bool,
    /// The [`FdStore`](super::fd_store::FdStore) stores it.
    pub(crate) is_stored: AtomicBool,
    /// The user's share; `None` if an earlier process opened it.
    _share: Option<Share>,
}

impl OpenFile {
    /// Wraps a file that was just opened.
    pub(crate) fn new(file: OwnedFd, node: NodeId, writable: bool, share: Option<Share>) -> Self {
        Self { file: Arc::new(file), node, writable, is_stored: AtomicBool::new(false), _share: share }
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A table of values by handle. An unknown handle gives EBADF.
///
/// The lower 32 bits of a handle are the slot of its value, from 0 up; the upper bits count, so that handles are not
/// reused soon.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    values: RwLock<Slab<(u64, Arc<T>)>>,
    count: AtomicU32,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { values: RwLock::default(), count: AtomicU32::new(0) }
    }
}

impl<T> Handles<T> {
    /// Adds a value; returns its handle, which is not 0.
    pub(crate) fn add(&self, value: Arc<T>) -> u64 {
        let count = self.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        let mut values = self.values.write();
        let slot = values.vacant_entry();
        let handle = u64::from(count) << 32 | slot.key() as u64;
        slot.insert((handle, value));
        handle
    }

    /// Restores the values of an earlier process. `generation` is the number of earlier processes.
    pub(crate) fn restore(&self, values: Vec<(u64, Arc<T>)>, generation: u32) {
        self.count.store(generation << 20, Ordering::Relaxed);
        let slot = |handle: u64| handle as u32 as usize;
        *self.values.write() =
            values.into_iter().map(|(handle, value)| (slot(handle), (handle, value))).collect();
    }

    /// Returns the value of a handle.
    ///
    /// # Errors
    /// EBADF.
    pub(crate) fn get(&self, handle: u64) -> Result<Arc<T>, Errno> {
        let values = self.values.read();
        let (found, value) = values.get(handle as u32 as usize).ok_or(Errno::BADF)?;
        if *found == handle { Ok(value.clone()) } else { Err(Errno::BADF) }
    }

    /// Removes a value.
    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<T>> {
        let mut values = self.values.write();
        let slot = handle as u32 as usize;
        values.get(slot).filter(|(found, _)| *found == handle)?;
        values.try_remove(slot).map(|(_, value)| value)
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.values.read().len()
    }
}

/// Open files with their handles, by inode.
type ByNode = HashMap<NodeId, Vec<(u64, Arc<OpenFile>)>>;

/// All open files, by handle and by inode.
///
/// The index by inode is needed because an unlinked file (deleted, or created with O_TMPFILE) can be reached only
/// through a descriptor that is still open.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    handles: Handles<OpenFile>,
    by_node: Sharded<Mutex<ByNode>>,
}

impl OpenFiles {
    fn shard(&self, node: NodeId) -> &Mutex<ByNode> {
        self.by_node.by_low_bits(node.0)
    }

    /// Adds an open file; returns its handle.
    pub(crate) fn add(&self, file: Arc<OpenFile>) -> u64 {
        let handle = self.handles.add(file.clone());
        self.shard(file.node).lock().entry(file.node).or_default().push((handle, file));
        handle
    }

    /// Restores the open files of an earlier process.
    pub(crate) fn restore(&self, files: Vec<(u64, Arc<OpenFile>)>, generation: u32) {
        for (handle, file) in &files {
            self.shard(file.node).lock().entry(file.node).or_default().push((*handle, file.clone()));
        }
        self.handles.restore(files, generation);
    }

    /// Returns the file of a handle.
    ///
    /// # Errors
    /// EBADF.
    pub(crate) fn get(&self, handle: u64) -> Result<Arc<OpenFile>, Errno> {
        self.handles.get(handle)
    }

    /// Returns the file of a handle, if it belongs to this inode.
    pub(crate) fn get_of(&self, node: NodeId, handle: u64) -> Option<Arc<OpenFile>> {
        self.handles.get(handle).ok().filter(|file| file.node == node)
    }

    /// Removes a handle. The file is closed after its last user.
    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<OpenFile>> {
        let file = self.handles.remove(handle)?;
        let mut shard = self.shard(file.node).lock();
        if let Some(files) = shard.get_mut(&file.node) {
            files.retain(|(_, other)| !Arc::ptr_eq(other, &file));
            if files.is_empty() {
                shard.remove(&file.node);
            }
        }
        drop(shard);
        Some(file)
    }

    /// Returns all open files of an inode, with their handles.
    pub(crate) fn all(&self, node: NodeId) -> Vec<(u64, Arc<OpenFile>)> {
        self.shard(node).lock().get(&node).cloned().unwrap_or_default()
    }

    /// Returns any open file of an inode.
    pub(crate) fn any(&self, node: NodeId) -> Option<Arc<OpenFile>> {
        self.shard(node).lock().get(&node)?.first().map(|(_, file)| file.clone())
    }

    /// Returns an open file of an inode that is writable.
    pub(crate) fn writable(&self, node: NodeId) -> Option<Arc<OpenFile>> {
        let shard = self.shard(node).lock();
        shard.get(&node)?.iter().find(|(_, file)| file.writable).map(|(_, file)| file.clone())
    }

    /// Number of handles in use.
    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }

    /// Reports whether no file is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
