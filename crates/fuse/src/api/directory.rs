//! Buffers for directory listings, in the wire format (`fuse_dirent`, `fuse_direntplus`) of the reply.

use shunt_fuse_abi::DirBuilder;

use super::{Entry, FileType};

/// Collects the reply to `readdir`.
#[derive(Debug)]
pub struct DirectoryBuffer(pub(crate) DirBuilder);

impl DirectoryBuffer {
    pub(crate) fn new(size: u32) -> Self {
        Self(DirBuilder::new(size as usize))
    }

    /// Adds an entry; `false` (and nothing added) once the buffer is full.
    ///
    /// `next` is the cookie from which a later `readdir` continues after this entry; it is never 0.
    pub fn push(&mut self, name: &[u8], ino: u64, kind: FileType, next: u64) -> bool {
        self.0.push(ino, next, kind.d_type(), name)
    }
}

/// Collects the reply to `readdirplus`.
///
/// Each entry with a node counts as one lookup, except `.` and `..`.
#[derive(Debug)]
pub struct DirectoryPlusBuffer(pub(crate) DirBuilder);

impl DirectoryPlusBuffer {
    pub(crate) fn new(size: u32) -> Self {
        Self(DirBuilder::new(size as usize))
    }

    /// Reports whether an entry of this name still fits. Ask before taking a lookup reference for it.
    pub fn has_room_for(&self, name: &[u8]) -> bool {
        self.0.fits(name.len(), true)
    }

    /// Adds a name with the reply that a lookup of it would get; `false` (and nothing added) once the buffer is full.
    pub fn push(&mut self, name: &[u8], entry: &Entry, next: u64) -> bool {
        self.0.push_plus(
            &entry.wire(),
            entry.attributes.ino,
            next,
            entry.attributes.file_type().d_type(),
            name,
        )
    }

    /// Adds a name without attributes: the kernel looks it up on demand. For `.` and `..`, and for names that are removed during
    /// the listing.
    pub fn push_name(&mut self, name: &[u8], ino: u64, kind: FileType, next: u64) -> bool {
        self.0.push_plus(&shunt_fuse_abi::EntryOut::default(), ino, next, kind.d_type(), name)
    }

    /// Passes each collected entry, with its name and in its wire format, to `change`, which may modify it. Names pushed without
    /// attributes have node 0.
    pub fn change_entries(&mut self, change: impl FnMut(&[u8], &mut shunt_fuse_abi::EntryOut)) {
        self.0.change_entries(change);
    }
}
