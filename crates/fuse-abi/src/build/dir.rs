//! Builder for replies to READDIR and READDIRPLUS.

use crate::dirent::Records;
use crate::{Dirent, Direntplus, EntryOut, Wire};

/// Collects directory records up to a maximum size.
///
/// A listing has either plain records or records with entries; the caller must not mix them.
#[derive(Debug, Clone)]
pub struct DirBuilder {
    bytes: Vec<u8>,
    capacity: usize,
}

impl DirBuilder {
    /// An empty listing of at most `capacity` bytes, which is the `size` of the request.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self { bytes: Vec::new(), capacity }
    }

    /// Adds a plain record: inode number, cookie of the next position, type (`DT_...`), name.
    ///
    /// Returns `false`, and adds nothing, when the record does not fit any more. A name that makes the kernel refuse the whole
    /// listing (empty, with a slash, above 4095 bytes) is skipped and counts as added, so that one damaged entry does not hide
    /// the others.
    pub fn push(&mut self, ino: u64, off: u64, typ: u32, name: &[u8]) -> bool {
        self.record(&[], Dirent { ino, off, namelen: name.len() as u32, r#type: typ }, name)
    }

    /// Adds a record with an entry. It counts as a lookup once it is sent, unless its node id is 0.
    ///
    /// Returns `false`, and adds nothing, as [`Self::push`] does.
    pub fn push_plus(&mut self, entry: &EntryOut, ino: u64, off: u64, typ: u32, name: &[u8]) -> bool {
        self.record(entry.as_bytes(), Dirent { ino, off, namelen: name.len() as u32, r#type: typ }, name)
    }

    fn record(&mut self, entry: &[u8], dirent: Dirent, name: &[u8]) -> bool {
        const MAX_NAME_BYTES: usize = 4095;
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(&b'/') {
            return true;
        }
        let size = (entry.len() + size_of::<Dirent>() + name.len()).next_multiple_of(8);
        let end = self.bytes.len() + size;
        if end > self.capacity {
            return false;
        }
        self.bytes.extend_from_slice(entry);
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }

    /// Passes each entry of a listing of records with entries, with its name, to `change`, which may modify it.
    pub fn change_entries(&mut self, mut change: impl FnMut(&[u8], &mut EntryOut)) {
        let mut at = 0;
        while let Some(record) = Records::new(&self.bytes[at..], true).next() {
            let Some(mut entry) = record.entry else { return };
            change(record.name, &mut entry);
            let size = (size_of::<Direntplus>() + record.name.len()).next_multiple_of(8);
            self.bytes[at..at + size_of::<EntryOut>()].copy_from_slice(entry.as_bytes());
            at += size;
        }
    }

    /// Reports whether a record for a name of `len` bytes fits, with an entry if `plus`. Ask before a lookup is counted.
    #[must_use]
    pub fn fits(&self, len: usize, plus: bool) -> bool {
        let head = if plus { size_of::<Direntplus>() } else { size_of::<Dirent>() };
        self.bytes.len().saturating_add(head).saturating_add(len).saturating_add(7) & !7 <= self.capacity
    }

    /// Reports whether nothing was added. An empty reply ends the directory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Consumes the builder and returns the payload of the reply.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Consumes the builder and returns the payload of the reply.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Empties the listing and sets another capacity, keeping the memory.
    pub fn reset(&mut self, capacity: usize) {
        self.bytes.clear();
        self.capacity = capacity;
    }
}
