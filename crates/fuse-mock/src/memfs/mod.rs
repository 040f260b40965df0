//! A small file system in memory: a reference for tests of the wire, and something to ask for fuzzers.
//!
//! It keeps files, directories, symbolic links, special files, hard links, extended attributes, and inodes that are
//! unlinked while open. Ids are never used again. It counts what the kernel holds, so that a test can tell whether
//! every lookup was forgotten and every open released.

mod file_system;
mod tree;

use std::collections::HashMap;

use parking_lot::Mutex;
use shunt_fuse::Errno;

pub use tree::Limits;
use tree::{Kind, ROOT, Tree};

/// What the kernel holds, as the file system has counted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Inodes, the root and those without a name included.
    pub nodes: usize,
    /// Lookups not yet forgotten.
    pub lookups: u64,
    /// Files and directories open.
    pub handles: usize,
    /// Lookups forgotten that were never given: a fault of the kernel or the framework.
    pub excess_forgets: u64,
    /// Releases of what is not open: likewise.
    pub excess_releases: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

#[derive(Debug)]
struct State {
    tree: Tree,
    handles: HashMap<u64, u64>,
    next_handle: u64,
    excess_releases: u64,
}

/// The file system.
#[derive(Debug)]
pub struct MemFs {
    state: Mutex<State>,
    limits: Limits,
}

impl Default for MemFs {
    fn default() -> Self {
        Self::new()
    }
}

impl MemFs {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    /// An empty one that ends there.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self { state: Mutex::new(State::new(limits)), limits }
    }

    /// Forgets everything: files, handles and what the kernel holds.
    pub fn reset(&self) {
        *self.state.lock() = State::new(self.limits);
    }

    /// What the kernel holds now.
    pub fn ledger(&self) -> Ledger {
        let state = self.state.lock();
        Ledger {
            nodes: state.tree.nodes.len(),
            lookups: state.tree.nodes.values().map(|node| node.lookups).sum(),
            handles: state.handles.len(),
            excess_forgets: state.tree.excess_forgets,
            excess_releases: state.excess_releases,
            bytes: state.tree.bytes,
        }
    }

    /// Makes a file behind the kernel's back, in the root.
    ///
    /// # Errors
    /// EEXIST, and those of the limits.
    pub fn plant(&self, name: &str, contents: &[u8]) -> Result<u64, Errno> {
        let tree = &mut self.state.lock().tree;
        let id =
            tree.make(ROOT, name.as_bytes(), Kind::File(Vec::new()), libc::S_IFREG | 0o644, 0, (0, 0))?;
        tree.write(id, 0, contents)?;
        Ok(id)
    }
}

impl State {
    fn new(limits: Limits) -> Self {
        Self { tree: Tree::new(limits), handles: HashMap::new(), next_handle: 1, excess_releases: 0 }
    }

    fn open(&mut self, id: u64) -> Result<u64, Errno> {
        self.tree.node_mut(id)?.opens += 1;
        let handle = self.next_handle;
        self.next_handle += 1;
        self.handles.insert(handle, id);
        Ok(handle)
    }

    fn release(&mut self, handle: u64) -> Result<(), Errno> {
        let Some(id) = self.handles.remove(&handle) else {
            self.excess_releases += 1;
            return Err(Errno::BADF);
        };
        self.tree.node_mut(id)?.opens -= 1;
        self.tree.reap(id);
        Ok(())
    }

    /// The inode that is open under a handle.
    fn opened(&self, id: u64, handle: u64) -> Result<u64, Errno> {
        match self.handles.get(&handle) {
            Some(&open) if open == id => Ok(id),
            _ => Err(Errno::BADF),
        }
    }
}
