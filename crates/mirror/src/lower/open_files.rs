//! Files that callers have open.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use shunt_fuse::NodeId;
use slab::Slab;

use super::shares::Share;

/// An open file.
#[derive(Debug)]
pub struct OpenFile {
    /// Opened with the caller's access mode.
    pub file: Arc<OwnedFd>,
    /// The inode.
    pub node: NodeId,
    /// Open for writing.
    pub writable: bool,
    /// A [`FdStore`](super::fd_store::FdStore) holds it.
    pub held: AtomicBool,
    /// None where another process opened it.
    _share: Option<Share>,
}

impl OpenFile {
    /// A file just opened.
    pub fn new(file: OwnedFd, node: NodeId, writable: bool, share: Option<Share>) -> Self {
        Self { file: Arc::new(file), node, writable, held: AtomicBool::new(false), _share: share }
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Values under numbers that the other side hands back. A number never given out is EBADF.
///
/// The lower 32 bits of a number are the place of its value, from 0 up; the upper ones count, so that a number is not
/// given again soon.
#[derive(Debug)]
pub struct Handles<T> {
    values: RwLock<Slab<(u64, Arc<T>)>>,
    count: AtomicU32,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { values: RwLock::default(), count: AtomicU32::new(0) }
    }
}

impl<T> Handles<T> {
    /// Keeps a value; tells its number, which is not 0.
    pub fn add(&self, value: Arc<T>) -> u64 {
        let count = self.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        let mut values = self.values.write();
        let place = values.vacant_entry();
        let handle = u64::from(count) << 32 | place.key() as u64;
        place.insert((handle, value));
        handle
    }

    /// Goes on where another process ended that had these values, of several that did one after the other.
    pub fn restore(&self, values: Vec<(u64, Arc<T>)>, generation: u32) {
        self.count.store(generation << 20, Ordering::Relaxed);
        let place = |handle: u64| handle as u32 as usize;
        *self.values.write() =
            values.into_iter().map(|(handle, value)| (place(handle), (handle, value))).collect();
    }

    /// The value of a number.
    ///
    /// # Errors
    /// EBADF.
    pub fn get(&self, handle: u64) -> Result<Arc<T>, Errno> {
        let values = self.values.read();
        let (found, value) = values.get(handle as u32 as usize).ok_or(Errno::BADF)?;
        if *found == handle { Ok(value.clone()) } else { Err(Errno::BADF) }
    }

    /// Takes a value out.
    pub fn remove(&self, handle: u64) -> Option<Arc<T>> {
        let mut values = self.values.write();
        let place = handle as u32 as usize;
        values.get(place).filter(|(found, _)| *found == handle)?;
        values.try_remove(place).map(|(_, value)| value)
    }

    /// Values kept.
    pub fn len(&self) -> usize {
        self.values.read().len()
    }

    /// No value is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

const SHARDS: usize = 16;

/// Open files with their handles.
type ByNode = HashMap<NodeId, Vec<(u64, Arc<OpenFile>)>>;

/// All open files, found by handle and by inode.
///
/// By inode, because a file without a name (deleted, or made by O_TMPFILE) can be reached by what is open only.
#[derive(Debug, Default)]
pub struct OpenFiles {
    handles: Handles<OpenFile>,
    by_node: [Mutex<ByNode>; SHARDS],
}

impl OpenFiles {
    fn shard(&self, node: NodeId) -> &Mutex<ByNode> {
        &self.by_node[node.0 as usize % SHARDS]
    }

    /// Keeps an open file; tells its handle.
    pub fn add(&self, file: Arc<OpenFile>) -> u64 {
        let handle = self.handles.add(file.clone());
        self.shard(file.node).lock().entry(file.node).or_default().push((handle, file));
        handle
    }

    /// Goes on where another process ended that had these files open.
    pub fn restore(&self, files: Vec<(u64, Arc<OpenFile>)>, generation: u32) {
        for (handle, file) in &files {
            self.shard(file.node).lock().entry(file.node).or_default().push((*handle, file.clone()));
        }
        self.handles.restore(files, generation);
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
    pub fn remove(&self, handle: u64) -> Option<Arc<OpenFile>> {
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

    /// All open files of an inode, with their handles.
    pub fn all(&self, node: NodeId) -> Vec<(u64, Arc<OpenFile>)> {
        self.shard(node).lock().get(&node).cloned().unwrap_or_default()
    }

    /// Any open file of an inode.
    pub fn any(&self, node: NodeId) -> Option<Arc<OpenFile>> {
        self.shard(node).lock().get(&node)?.first().map(|(_, file)| file.clone())
    }

    /// An open file of an inode that can write.
    pub fn writable(&self, node: NodeId) -> Option<Arc<OpenFile>> {
        let shard = self.shard(node).lock();
        shard.get(&node)?.iter().find(|(_, file)| file.writable).map(|(_, file)| file.clone())
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
