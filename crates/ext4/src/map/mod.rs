//! Mapping of file blocks to device blocks, through extent trees or indirect block maps.

mod extents;
mod indirect;

use crate::block_mapping::MappedRange;
use crate::block_mapping::Mapping;
use crate::buffer::{Handle, MetadataCache};
use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::layout::{InodeFlags, RoCompat};
use crate::superblock::Geometry;

pub(crate) use extents::fill_sum as fill_extent_sum;

/// A run of contiguous blocks in a file's map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MappedExtent {
    /// First block, numbered within the file.
    pub(crate) logical: u32,
    /// Number of blocks.
    pub(crate) length: u32,
    /// First block, numbered on the device.
    pub(crate) start: u64,
    /// Set if the blocks are written; unwritten ones read as zeros.
    pub(crate) written: bool,
}

impl MappedExtent {
    /// Returns the file block behind the last.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.length)
    }

    /// Returns the extent without its first `skip` blocks.
    pub(crate) fn from(&self, skip: u32) -> Self {
        Self {
            logical: self.logical.wrapping_add(skip),
            length: self.length - skip,
            start: self.start + u64::from(skip),
            ..*self
        }
    }

    /// Returns the part within a range of the file.
    fn within(&self, (from, to): (u64, u64)) -> Option<Self> {
        let first = u64::from(self.logical).max(from);
        let end = self.end().min(to);
        let length = end.checked_sub(first).filter(|&length| length > 0)? as u32;
        Some(Self { length, ..self.from((first - u64::from(self.logical)) as u32) })
    }
}

/// Number of blocks that one [`replace`] may change: on each level a node and a new one, with bitmaps and descriptors.
pub(crate) const CREDITS: u32 = 6 * 4;

/// Replaces the mapping of blocks `from..to` of a file by `new`: in order, within the range, and no longer than one run that
/// [`map`] returns. Returns the previous mapping; its blocks are not freed. The caller must save the inode.
///
/// # Errors
/// [`crate::Error::NoSpace`] and [`crate::Error::Corrupt`] before anything is changed; [`crate::Error::Unsupported`] for
/// unwritten blocks in a block map.
pub(crate) fn replace(
    fs: &Filesystem,
    handle: &mut Handle<'_>,
    inode: &mut Inode,
    range: (u64, u64),
    new: &[MappedExtent],
) -> Result<Vec<MappedExtent>> {
    let number = inode.number;
    let replaced = match inode.flags.contains(InodeFlags::EXTENTS) {
        true => extents::replace(fs, handle, inode, range, new),
        false => indirect::replace(fs, handle, inode, range, new),
    };
    replaced.map_err(|error| error.of_inode(number))
}

/// Returns the maximum length of a file in blocks, by the format of its map.
pub(crate) fn longest(geometry: &Geometry, inode: &Inode) -> u64 {
    match inode.flags.contains(InodeFlags::EXTENTS) {
        // The last number is excluded: no extent could end behind it.
        true => u32::MAX.into(),
        false => indirect::longest(geometry),
    }
}

/// Returns the maximum length of a file in blocks: at most [`longest`], and so that the inode can count the occupied blocks.
///
/// Without `huge_file`, an inode counts units of 512 bytes in 32 bits, else in 48 bits. The limits equal those of the kernel,
/// which treats a larger inode as corrupt.
pub(crate) fn largest(geometry: &Geometry, inode: &Inode) -> u64 {
    let huge = geometry.ro_compat.contains(RoCompat::HUGE_FILE);
    let counted = if huge { (1 << 48) - 1 } else { u64::from(u32::MAX) >> (geometry.block_bits - 9) };
    match inode.flags.contains(InodeFlags::EXTENTS) {
        true => longest(geometry, inode).min(counted),
        false => longest(geometry, inode).min(indirect::dense(geometry, counted)),
    }
}

/// Returns the run that starts at `logical`, of at least one and at most `limit` blocks.
pub(crate) fn map(
    geometry: &Geometry,
    store: &MetadataCache,
    inode: &Inode,
    logical: u32,
    limit: u32,
) -> Result<MappedRange> {
    let run = match inode.flags.contains(InodeFlags::EXTENTS) {
        true => extents::map(geometry, store, inode, logical),
        false => indirect::map(geometry, store, inode, logical, limit),
    };
    let run = run.and_then(|run| match run.mapping {
        Mapping::Written(start) | Mapping::Unwritten(start) => {
            store.check_file_blocks(start, run.length.into())?;
            Ok(run)
        }
        Mapping::Hole => Ok(run),
    });
    let run = run.map_err(|error| error.of_inode(inode.number))?;
    Ok(MappedRange { length: run.length.min(limit.max(1)), ..run })
}
