//! Access to the blocks of a directory, abstracted from their storage.

use std::sync::Arc;

use crate::error::{Corruption, Error, Result};
use crate::superblock::Geometry;

/// Read access to the blocks of a directory.
pub(crate) trait Source {
    fn geometry(&self) -> &Geometry;

    /// Returns the inode number, for errors.
    fn number(&self) -> u32;

    /// Reports whether the inode has the index flag.
    fn is_indexed(&self) -> bool;

    /// Returns the number of blocks.
    fn length(&self) -> Result<u32>;

    /// Returns a verified block and its block number on the device; `None` for a hole, which contains no names.
    fn block(&self, logical: u32) -> Result<Option<(u64, Arc<[u8]>)>>;

    fn wrong(&self, what: impl Into<String>) -> Error {
        Corruption::new(what).inode(self.number()).into()
    }

    /// Reports whether metadata checksums are enabled, so that every leaf ends with a checksum tail.
    fn is_summed(&self) -> bool {
        self.geometry().checksum_seed.is_some()
    }
}

/// Write access to the blocks of a directory.
///
/// All changes belong to one transaction. An error between two dependent changes leaves the directory corrupt unless the
/// transaction is aborted; expected errors (no space) therefore occur before all changes.
pub(crate) trait Target: Source {
    /// Changes a block that was read.
    fn change<R>(
        &mut self,
        logical: u32,
        change: impl FnOnce(&mut [u8], &Geometry) -> std::result::Result<R, Corruption>,
    ) -> Result<R>;

    /// Appends a block, initially zeroed; returns its position.
    fn append(
        &mut self,
        fill: impl FnOnce(&mut [u8], &Geometry) -> std::result::Result<(), Corruption>,
    ) -> Result<u32>;

    /// Sets or clears the inode's index flag.
    fn set_indexed(&mut self, indexed: bool);
}
