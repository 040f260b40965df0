//! Files that the next daemon cannot open again: who has them held for it.

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
use super::node_id::Ident;
use super::open_files::OpenFile;
use super::ops::Identity;

/// Holds open files for a process that goes on where this one ends.
pub trait FdStore: Send + Sync {
    /// Holds the file of a handle.
    fn hold(&self, handle: u64, file: BorrowedFd<'_>);
    /// The handle was closed.
    fn let_go(&self, handle: u64);
    /// Holds an inode that nobody opens.
    fn hold_node(&self, node: NodeId, file: BorrowedFd<'_>);
    /// The other side does not know the inode any more.
    fn let_go_node(&self, node: NodeId);
    /// Holds an open file of a mount below the source, whose inodes have its index in their ids.
    fn hold_mount(&self, index: u16, file: BorrowedFd<'_>);
}

/// The keeper, if there is one.
#[derive(Default)]
pub(super) struct Keeping {
    keeper: OnceLock<Arc<dyn FdStore>>,
    /// Names taken away so far.
    removals: AtomicU64,
    /// Files are used without being opened: those that lose their last name are held by inode.
    by_node: AtomicBool,
    nodes: Mutex<HashSet<NodeId>>,
}

impl fmt::Debug for Keeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeping").field("kept", &self.keeper.get().is_some()).finish_non_exhaustive()
    }
}

impl Lower {
    /// Has open files held that cannot be opened again: those without a name, and those whose id does not lead to them.
    ///
    /// `by_node`: nobody opens files, so any that loses its last name may be in use.
    pub fn keep_with(&self, keeper: Arc<dyn FdStore>, by_node: bool) {
        self.mounts.keep_with(keeper.clone());
        let _ = self.keeping.keeper.set(keeper);
        self.keeping.by_node.store(by_node, Ordering::Release);
    }

    pub(super) fn hold(&self, handle: u64, file: &OpenFile) {
        if let Some(keeper) = self.keeping.keeper.get()
            && !file.held.swap(true, Ordering::AcqRel)
        {
            keeper.hold(handle, file.as_fd());
        }
    }

    pub(super) fn let_go(&self, handle: u64, file: &OpenFile) {
        if file.held.load(Ordering::Acquire)
            && let Some(keeper) = self.keeping.keeper.get()
        {
            keeper.let_go(handle);
        }
    }

    pub(super) fn removals(&self) -> u64 {
        self.keeping.removals.load(Ordering::Acquire)
    }

    /// After a file was opened; `removals` is how many names were gone before.
    pub(super) fn hold_opened(&self, handle: u64, file: &OpenFile, removals: u64) {
        if self.keeping.keeper.get().is_none() {
            return;
        }
        let nameless = || self.removals() != removals && links(file.as_fd()) == Some(0);
        if Ident::of(file.node).is_none() || nameless() {
            self.hold(handle, file);
        }
    }

    /// Before the name of this inode goes: holds its open files where it is the last one.
    pub(super) fn hold_before_loss(&self, victim: BorrowedFd<'_>) -> Option<NodeId> {
        self.keeping.keeper.get()?;
        let by_node = self.keeping.by_node.load(Ordering::Acquire);
        if (self.files.is_empty() && !by_node) || links(victim) != Some(1) {
            return None;
        }
        if by_node {
            self.hold_inode(victim);
        }
        let id = self.known(victim)?;
        self.hold_all(id);
        Some(id)
    }

    /// The name is gone; the file may have been opened meanwhile.
    pub(super) fn hold_after_loss(&self, id: Option<NodeId>) {
        self.keeping.removals.fetch_add(1, Ordering::AcqRel);
        if let Some(id) = id {
            self.hold_all(id);
        }
    }

    /// Holds an inode without a name, or about to lose it, until it is forgotten. Bounded as the daemon's own are.
    pub(super) fn hold_inode(&self, file: BorrowedFd<'_>) {
        let Some(keeper) = self.keeping.keeper.get().filter(|_| self.keeping.by_node.load(Ordering::Acquire))
        else {
            return;
        };
        let Ok((Identity::Handle(node), _)) = self.identify(file) else { return };
        let Some(id) = node.id() else { return };
        if self.resumes {
            // The other side may know it from an earlier process, and will have it forgotten.
            self.nodes.revive(node).ok();
        }
        if self.nodes.get(id).is_err() {
            return;
        }
        let mut nodes = self.keeping.nodes.lock();
        if nodes.len() < self.limits.nameless && nodes.insert(id) {
            keeper.hold_node(id, file);
        }
    }

    /// Goes on with what was held for an earlier process.
    pub(super) fn restore_inode(&self, id: NodeId, file: OwnedFd) -> Result<(), Errno> {
        match self.identify(file.as_fd())?.0 {
            Identity::Handle(node) if node.id() == Some(id) => self.nodes.revive(node)?,
            _ => return Err(Errno::STALE),
        };
        self.keeping.nodes.lock().insert(id);
        self.nameless.put(id, Arc::new(file));
        Ok(())
    }

    /// The other side does not know the inode any more.
    pub(super) fn let_go_inode(&self, id: NodeId) {
        if self.keeping.by_node.load(Ordering::Acquire)
            && self.keeping.nodes.lock().remove(&id)
            && let Some(keeper) = self.keeping.keeper.get()
        {
            keeper.let_go_node(id);
        }
    }

    fn hold_all(&self, id: NodeId) {
        for (handle, file) in self.files.all(id) {
            self.hold(handle, &file);
        }
    }
}

/// Names that a file has; none for what is not a regular file.
fn links(file: BorrowedFd<'_>) -> Option<u32> {
    let asked = StatxFlags::NLINK | StatxFlags::TYPE;
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, asked).ok()?;
    let regular = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
    regular.then_some(stat.stx_nlink)
}
