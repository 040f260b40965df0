//! From a block of a file to a block of the device.

mod extents;
mod indirect;

use crate::error::Result;
use crate::inode::Inode;
use crate::layout::InodeFlags;
use crate::store::Store;
use crate::superblock::Geometry;

pub(crate) use extents::fill_sum as fill_extent_sum;

/// A run of blocks of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First block in the file.
    pub logical: u32,
    /// Blocks.
    pub length: u32,
    /// Where they lie.
    pub place: Place,
}

/// Where a run lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: reads as zeros.
    Hole,
    /// From this block on.
    Written(u64),
    /// From this block on, but never written: reads as zeros.
    Unwritten(u64),
}

/// The run that begins at `logical`: at most `most` blocks, and at least one.
pub(crate) fn map(geometry: &Geometry, store: &Store, inode: &Inode, logical: u32, most: u32) -> Result<Run> {
    let run = match inode.flags.contains(InodeFlags::EXTENTS) {
        true => extents::map(geometry, store, inode, logical),
        false => indirect::map(geometry, store, inode, logical, most),
    };
    let run = run.map_err(|error| error.of_inode(inode.number))?;
    Ok(Run { length: run.length.min(most.max(1)), ..run })
}
