//! What files held before another version took their place: of that most is often in the new version too.
//!
//! The old backing files are kept open, which lose their names as ever. So nothing is to be put right after a crash, and a
//! restart costs no more than that all of a file comes.

use crate::replica::db::basis_cache::BasisFile;
use std::sync::Arc;

use crate::object::Layout;
use crate::replica::Shared;
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::{CacheState, Dirty, Inode};
use crate::replica::error::Result;

impl ReplicaDb {
    /// What a file holds, while it is still at its place, if it can be of use for what comes there.
    pub(crate) fn basis_of(&self, node: &Inode, shared: &Shared) -> Result<Option<BasisFile>> {
        let is_known = node.state == CacheState::Complete
            && !node.maybe_dirty
            && !node.dirty.intersects(Dirty::CONTENT | Dirty::NEW);
        if !is_known {
            return Ok(None);
        }
        let content = self.content(node.ino)?;
        let has_parts = match &content.layout {
            Layout::Inline(_) => false,
            Layout::Pieces(pieces) => pieces.len() > 1,
            Layout::Indirect(_) => true,
        };
        if !has_parts {
            return Ok(None);
        }
        let file = match self.opens.get(&node.ino) {
            Some(open) => Some(open.file.clone()),
            None => shared.files.existing(node.ino).ok().map(Arc::new),
        };
        Ok(file.map(|file| BasisFile::new(content, file)))
    }
}
