//! A small in-memory file system: the reference for protocol tests, and the server for fuzzers.
//!
//! It supports files, directories, symbolic links, special files, hard links, extended attributes, and inodes that are unlinked
//! while open. Ids are never reused. It counts the kernel's references, so that a test can check that every lookup was forgotten
//! and every open released.

mod file_system;
mod tree;

use std::collections::HashMap;

use parking_lot::Mutex;
use shunt_fuse::Errno;

pub use tree::Limits;
use tree::{Kind, ROOT, Tree};

/// The references of the kernel, as counted by the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Number of inodes, including the root and unlinked ones.
    pub nodes: usize,
    /// Number of lookups not yet forgotten.
    pub lookups: u64,
    /// Number of open files and directories.
    pub handles: usize,
    /// Number of lookups forgotten in excess: a bug of the kernel or the framework.
    pub excess_forgets: u64,
    /// Number of releases of files that are not open: a bug of the kernel or the framework.
    pub excess_releases: u64,
    /// Total size of all files in bytes.
    pub bytes: u64,
}

#[derive(Debug)]
struct State {
    tree: Tree,
    handles: HashMap<u64, u64>,
    next_handle: u64,
    excess_releases: u64,
}

/// The in-memory file system.
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
    /// Makes an empty file system.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    /// Makes an empty file system with these limits.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self { state: Mutex::new(State::new(limits)), limits }
    }

    /// Resets everything: files, handles and reference counts.
    pub fn reset(&self) {
        *self.state.lock() = State::new(self.limits);
    }

    /// Returns the kernel's references.
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

    /// Makes a file in the root without the kernel's knowledge.
    ///
    /// # Errors
    /// EEXIST; ENAMETOOLONG; ENOSPC or EFBIG beyond a limit.
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

    /// Returns the inode that is open under a handle.
    fn opened(&self, id: u64, handle: u64) -> Result<u64, Errno> {
        match self.handles.get(&handle) {
            Some(&open) if open == id => Ok(id),
            _ => Err(Errno::BADF),
        }
    }
}
