//! Files that the next daemon cannot open again: who has them held for it.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, StatxFlags};
use shunt_fuse::NodeId;

use super::Lower;
use super::ident::Ident;
use super::open_files::OpenFile;

/// Holds open files for a process that goes on where this one ends.
pub trait Keeper: Send + Sync {
    /// Holds the file of a handle.
    fn hold(&self, handle: u64, file: BorrowedFd<'_>);
    /// The handle was closed.
    fn let_go(&self, handle: u64);
}

/// The keeper, if there is one.
#[derive(Default)]
pub(super) struct Keeping {
    keeper: OnceLock<Box<dyn Keeper>>,
    /// Names taken away so far.
    removals: AtomicU64,
}

impl fmt::Debug for Keeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeping").field("kept", &self.keeper.get().is_some()).finish_non_exhaustive()
    }
}

impl Lower {
    /// Has open files held that cannot be opened again: those without a name, and those whose id does not lead to them.
    pub fn keep_with(&self, keeper: Box<dyn Keeper>) {
        let _ = self.keeping.keeper.set(keeper);
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
        if self.files.is_empty() || links(victim) != Some(1) {
            return None;
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
