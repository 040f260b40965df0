//! Opening a file system so that another process can continue after this one was killed.

use std::sync::Arc;

use crate::buffer::{self, Operation, Outcome, SharedMemory};
use crate::device::Device;
use crate::error::Result;
use crate::filesystem::Filesystem;

/// The memory of the shadow copies.
pub(super) enum Memory {
    New(SharedMemory),
    Inherited(SharedMemory),
}

impl Filesystem {
    /// Opens a file system for writing, like [`open_writable_with_journal`](Self::open_writable_with_journal), and copies each
    /// uncommitted change into `memory`: [`SHADOW_WORDS`](crate::SHADOW_WORDS) words, zero at first. If this process is killed,
    /// one that has the same memory [continues](Self::resume).
    ///
    /// Changes then run one at a time, and cost a copy of each block that they change.
    ///
    /// # Errors
    /// The errors of `open_writable_with_journal`; [`Error::Invalid`](crate::Error::Invalid) for memory of another size.
    pub fn open_resumable(
        device: Arc<dyn Device>,
        journal: Option<Arc<dyn Device>>,
        memory: SharedMemory,
    ) -> Result<Self> {
        Ok(Self::open_for_changes(device, journal, Some(Memory::New(memory)))?.0)
    }

    /// Continues after a process that was killed, with the memory that it passed to [`open_resumable`](Self::open_resumable) or
    /// to this function. All changes that it had completed are there, and committed; a change that it had begun has not happened.
    /// Returns the outcomes of its [operations](Operation) as well.
    ///
    /// Inodes without links are not freed, because they may be in use: see [`unlinked`](Self::unlinked).
    ///
    /// # Errors
    /// The errors of `open_writable_with_journal`; [`Error::Corrupt`](crate::Error::Corrupt) if the memory is not that of this
    /// file system, or if the process had aborted a transaction.
    pub fn resume(
        device: Arc<dyn Device>,
        journal: Option<Arc<dyn Device>>,
        memory: SharedMemory,
    ) -> Result<(Self, Vec<Outcome>)> {
        Self::open_for_changes(device, journal, Some(Memory::Inherited(memory)))
    }

    /// Runs a change as an operation: its outcome is published together with the change itself. The changes that do so are
    /// creating, linking, renaming and removing names, setting and removing extended attributes, and shifting extents.
    ///
    /// With [`Operation::earlier`] set, shifting extents continues after the last extent that was moved. The other changes are
    /// complete then, and must not be called.
    pub fn run_as<R>(&self, operation: Operation, run: impl FnOnce() -> R) -> R {
        buffer::run_as(operation, run)
    }

    /// Returns the inodes without links that are not freed yet.
    pub fn unlinked(&self) -> Vec<u32> {
        let mut numbers = self.orphans.0.lock().numbers();
        numbers.retain(|number| self.inode(*number).is_ok_and(|inode| inode.links == 0));
        numbers
    }
}
