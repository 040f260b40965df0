//! What directories are made of: blocks, by their place.

use std::sync::Arc;

use crate::error::{Corruption, Error, Result};
use crate::superblock::Geometry;

/// The blocks of a directory, to be read.
pub(crate) trait Source {
    fn geometry(&self) -> &Geometry;

    /// The number of its inode, for errors.
    fn number(&self) -> u32;

    /// Its inode says that it has an index.
    fn is_indexed(&self) -> bool;

    /// Blocks that it has.
    fn length(&self) -> Result<u32>;

    /// A verified block by its place, and where it lies; `None` for a hole, which holds no names.
    fn block(&self, logical: u32) -> Result<Option<(u64, Arc<[u8]>)>>;

    fn wrong(&self, what: impl Into<String>) -> Error {
        Corruption::new(what).inode(self.number()).into()
    }

    /// Checksums are kept, and every leaf ends with room for one.
    fn is_summed(&self) -> bool {
        self.geometry().checksum_seed.is_some()
    }
}

/// The blocks of a directory, to be changed.
///
/// Everything here is part of one transaction. An error between two changes that need each other leaves the directory
/// damaged unless the transaction is given up; what may fail for a good reason (no space) comes before all changes.
pub(crate) trait Target: Source {
    /// Changes a block that was read.
    fn change<R>(
        &mut self,
        logical: u32,
        change: impl FnOnce(&mut [u8], &Geometry) -> std::result::Result<R, Corruption>,
    ) -> Result<R>;

    /// Grows the directory by a block, which begins as zeros; gives its place.
    fn append(
        &mut self,
        fill: impl FnOnce(&mut [u8], &Geometry) -> std::result::Result<(), Corruption>,
    ) -> Result<u32>;

    /// Notes in the inode whether the directory has an index.
    fn set_indexed(&mut self, indexed: bool);
}
