//! Listings, built in the exact form that the kernel reads.

use shunt_fuse_abi::DirBuilder;

use super::{Entry, FileType};

/// Collects the answer to `readdir`.
#[derive(Debug)]
pub struct DirectoryBuffer(pub(crate) DirBuilder);

impl DirectoryBuffer {
    pub(crate) fn new(size: u32) -> Self {
        Self(DirBuilder::new(size as usize))
    }

    /// Adds an entry; `false` (and nothing added) once the buffer is full.
    ///
    /// `next` is the cookie from which a later `readdir` goes on after this entry; it is never 0.
    pub fn push(&mut self, name: &[u8], ino: u64, kind: FileType, next: u64) -> bool {
        self.0.push(ino, next, kind.d_type(), name)
    }
}

/// Collects the answer to `readdirplus`.
///
/// Each entry with a node counts as one lookup, except `.` and `..`.
#[derive(Debug)]
pub struct DirectoryPlusBuffer(pub(crate) DirBuilder);

impl DirectoryPlusBuffer {
    pub(crate) fn new(size: u32) -> Self {
        Self(DirBuilder::new(size as usize))
    }

    /// Whether an entry of this name still fits. Ask before taking a lookup reference for it.
    pub fn has_room_for(&self, name: &[u8]) -> bool {
        self.0.fits(name.len(), true)
    }

    /// Adds a name with what a lookup would say of it; `false` (and nothing added) once the buffer is full.
    pub fn push(&mut self, name: &[u8], entry: &Entry, next: u64) -> bool {
        self.0.push_plus(
            &entry.wire(),
            entry.attributes.ino,
            next,
            entry.attributes.file_type().d_type(),
            name,
        )
    }

    /// Adds a name alone: the kernel looks it up when it needs more. For `.` and `..`, and for names that vanish
    /// while being listed.
    pub fn push_name(&mut self, name: &[u8], ino: u64, kind: FileType, next: u64) -> bool {
        self.0.push_plus(&shunt_fuse_abi::EntryOut::default(), ino, next, kind.d_type(), name)
    }

    /// Shows each entry collected, by its name and as the kernel will read it, and has it changed. Names pushed alone
    /// have node 0.
    pub fn change_entries(&mut self, change: impl FnMut(&[u8], &mut shunt_fuse_abi::EntryOut)) {
        self.0.change_entries(change);
    }
}
