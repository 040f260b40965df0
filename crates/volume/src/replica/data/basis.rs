//! Basis files: the old versions of replaced files, most of whose chunks are often part of the new version too.
//!
//! The old backing files are unlinked as usual and only kept open. There is nothing to recover after a crash, and a restart
//! costs no more than a complete download.

use std::sync::Arc;

use crate::object::Layout;
use crate::replica::Shared;
use crate::replica::db::ReplicaDb;
use crate::replica::db::basis_cache::BasisFile;
use crate::replica::db::inode::{CacheState, Dirty, Inode};
use crate::replica::error::Result;

impl ReplicaDb {
    /// Returns the current version of a file as a basis for its next one, if its content is known and has several chunks.
    pub(crate) fn basis_of(&self, inode: &Inode, shared: &Shared) -> Result<Option<BasisFile>> {
        let is_known = inode.state == CacheState::Complete
            && !inode.maybe_dirty
            && !inode.dirty.intersects(Dirty::CONTENT | Dirty::NEW);
        if !is_known {
            return Ok(None);
        }
        let content = self.content(inode.ino)?;
        let has_parts = match &content.layout {
            Layout::Inline(_) => false,
            Layout::Direct(pieces) => pieces.len() > 1,
            Layout::Indirect(_) => true,
        };
        if !has_parts {
            return Ok(None);
        }
        let file = match self.opens.get(&inode.ino) {
            Some(open) => Some(open.file.clone()),
            None => shared.files.existing(inode.ino).ok().map(Arc::new),
        };
        Ok(file.map(|file| BasisFile::new(content, file)))
    }
}
