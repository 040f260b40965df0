//! Descriptor store for files that the next daemon cannot open again by id, such as unlinked open files.

use std::collections::HashSet;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::io::Errno;
use shunt_fuse::{NodeId, TableNode as _};

use super::Lower;
use super::identity::Identity;
use super::node_id::Ident;
use super::open_files::OpenFile;

/// Stores open files for the process that takes over from this one.
pub(crate) trait FdStore: Send + Sync {
    /// Stores the file of a handle.
    fn store(&self, handle: u64, file: BorrowedFd<'_>);
    /// Drops the file of a closed handle.
    fn release(&self, handle: u64);
    /// Stores an inode that is used without an open handle.
    fn store_node(&self, node: NodeId, file: BorrowedFd<'_>);
    /// Drops an inode that the client forgot.
    fn release_node(&self, node: NodeId);
    /// Stores an open file of a mount below the source, whose inodes carry its index in their ids.
    fn store_mount(&self, index: u16, file: BorrowedFd<'_>);
}

/// State of storing descriptors; inactive without a store.
#[derive(Default)]
pub(super) struct FdStoreState {
    store: OnceLock<Arc<dyn FdStore>>,
    /// Number of names removed since the daemon started.
    removals: AtomicU64,
    /// Files are used without OPEN: unlinked ones are stored by inode.
    by_node: AtomicBool,
    nodes: Mutex<HashSet<NodeId>>,
}

impl fmt::Debug for FdStoreState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FdStoreState").field("is_set", &self.store.get().is_some()).finish_non_exhaustive()
    }
}

impl Lower {
    /// Starts storing open files that cannot be opened again: unlinked ones, and those whose id does not encode a file
    /// handle.
    ///
    /// `by_node`: files are used without OPEN, so any unlinked file may be in use.
    pub(crate) fn set_fd_store(&self, store: Arc<dyn FdStore>, by_node: bool) {
        self.mounts.set_fd_store(store.clone());
        let _ = self.fd_store.store.set(store);
        self.fd_store.by_node.store(by_node, Ordering::Release);
    }

    pub(super) fn store_file(&self, handle: u64, file: &OpenFile) {
        if let Some(store) = self.fd_store.store.get()
            && !file.is_stored.swap(true, Ordering::AcqRel)
        {
            store.store(handle, file.as_fd());
        }
    }

    pub(super) fn release_file(&self, handle: u64, file: &OpenFile) {
        if file.is_stored.load(Ordering::Acquire)
            && let Some(store) = self.fd_store.store.get()
        {
            store.release(handle);
        }
    }

    pub(super) fn removals(&self) -> u64 {
        self.fd_store.removals.load(Ordering::Acquire)
    }

    /// Called after a file was opened; `removals` is the count of removed names before the open.
    pub(super) fn store_opened(&self, handle: u64, file: &OpenFile, removals: u64) {
        if self.fd_store.store.get().is_none() {
            return;
        }
        let unlinked = || self.removals() != removals && links(file.as_fd()) == Some(0);
        if Ident::of(file.node).is_none() || unlinked() {
            self.store_file(handle, file);
        }
    }

    /// Called before a name of this inode is removed: stores its open files if it is the last one.
    pub(super) fn store_before_unlink(&self, victim: BorrowedFd<'_>) -> Option<NodeId> {
        self.fd_store.store.get()?;
        let by_node = self.fd_store.by_node.load(Ordering::Acquire);
        if (self.files.is_empty() && !by_node) || links(victim) != Some(1) {
            return None;
        }
        if by_node {
            self.store_inode(victim);
        }
        let id = self.known(victim)?;
        self.store_all(id);
        Some(id)
    }

    /// Called after the removal; the file may have been opened meanwhile.
    pub(super) fn store_after_unlink(&self, id: Option<NodeId>) {
        self.fd_store.removals.fetch_add(1, Ordering::AcqRel);
        if let Some(id) = id {
            self.store_all(id);
        }
    }

    /// Stores an unlinked inode, or one about to be, until it is forgotten. The count is bounded like that of the
    /// daemon's own descriptors.
    pub(super) fn store_inode(&self, file: BorrowedFd<'_>) {
        let Some(store) = self.fd_store.store.get().filter(|_| self.fd_store.by_node.load(Ordering::Acquire))
        else {
            return;
        };
        let Ok((Identity::Handle(node), _)) = self.identify(file) else { return };
        let Some(id) = node.id() else { return };
        if self.resumes {
            // The client may know the inode from an earlier process and will send a FORGET for it.
            self.nodes.revive(node).ok();
        }
        if self.nodes.get(id).is_err() {
            return;
        }
        let mut nodes = self.fd_store.nodes.lock();
        if nodes.len() < self.limits.unlinked && nodes.insert(id) {
            store.store_node(id, file);
        }
    }

    /// Restores an inode that was stored for an earlier process.
    pub(super) fn restore_inode(&self, id: NodeId, file: OwnedFd) -> Result<(), Errno> {
        match self.identify(file.as_fd())?.0 {
            Identity::Handle(node) if node.id() == Some(id) => self.nodes.revive(node)?,
            _ => return Err(Errno::STALE),
        };
        self.fd_store.nodes.lock().insert(id);
        self.unlinked.put(id, Arc::new(file));
        Ok(())
    }

    /// Drops the stored inode when the client forgets it.
    pub(super) fn release_inode(&self, id: NodeId) {
        if self.fd_store.by_node.load(Ordering::Acquire)
            && self.fd_store.nodes.lock().remove(&id)
            && let Some(store) = self.fd_store.store.get()
        {
            store.release_node(id);
        }
    }

    fn store_all(&self, id: NodeId) {
        for (handle, file) in self.files.all(id) {
            self.store_file(handle, &file);
        }
    }
}

/// Returns the link count of a regular file, `None` for other types.
fn links(file: BorrowedFd<'_>) -> Option<u32> {
    let mask = StatxFlags::NLINK | StatxFlags::TYPE;
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, mask).ok()?;
    let regular = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
    regular.then_some(stat.stx_nlink)
}
