//! From a block of a file to a block of the device.

mod extents;
mod indirect;

use crate::buffer::{Handle, MetadataCache};
use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::layout::{InodeFlags, RoCompat};
use crate::mapped_range::MappedRange;
use crate::mapped_range::Mapping;
use crate::superblock::Geometry;

pub(crate) use extents::fill_sum as fill_extent_sum;

/// Blocks of a file that lie one behind the other, as its map has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MappedExtent {
    /// First block in the file.
    pub(crate) logical: u32,
    /// Blocks.
    pub(crate) length: u32,
    /// First block on the device.
    pub(crate) start: u64,
    /// What it holds is the file's; else it reads as zeros.
    pub(crate) written: bool,
}

impl MappedExtent {
    /// The block of the file behind the last.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.length)
    }

    /// Without the first `skip` blocks.
    pub(crate) fn from(&self, skip: u32) -> Self {
        Self {
            logical: self.logical.wrapping_add(skip),
            length: self.length - skip,
            start: self.start + u64::from(skip),
            ..*self
        }
    }

    /// The part that lies in a range of the file.
    fn within(&self, (from, to): (u64, u64)) -> Option<Self> {
        let first = u64::from(self.logical).max(from);
        let end = self.end().min(to);
        let length = end.checked_sub(first).filter(|&length| length > 0)? as u32;
        Some(Self { length, ..self.from((first - u64::from(self.logical)) as u32) })
    }
}

/// Blocks that one [`replace`] may change: on each level a node and a new one, with bitmaps and descriptors.
pub(crate) const CREDITS: u32 = 6 * 4;

/// Makes blocks `from..to` of a file consist of `new`: in order, within, and not farther than [`map`] tells of one run.
/// Tells what was there before; those blocks are not freed, and the inode is to be saved.
///
/// # Errors
/// [`crate::Error::NoSpace`] and [`crate::Error::Corrupt`] before anything is changed; [`crate::Error::Unsupported`] for blocks never
/// written where the map has no such.
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

/// Blocks that a file can have, by the form of its map.
pub(crate) fn longest(geometry: &Geometry, inode: &Inode) -> u64 {
    match inode.flags.contains(InodeFlags::EXTENTS) {
        // The last number is left out: no extent could end behind it.
        true => u32::MAX.into(),
        false => indirect::longest(geometry),
    }
}

/// Blocks of the largest file: as [`longest`], and so few that the inode can count what it occupies.
///
/// Without `huge_file` it counts units of 512 bytes in 32 bits, else in 48 bits. Those are the limits of the kernel, which
/// takes an inode for damaged that is larger.
pub(crate) fn largest(geometry: &Geometry, inode: &Inode) -> u64 {
    let huge = geometry.ro_compat.contains(RoCompat::HUGE_FILE);
    let counted = if huge { (1 << 48) - 1 } else { u64::from(u32::MAX) >> (geometry.block_bits - 9) };
    match inode.flags.contains(InodeFlags::EXTENTS) {
        true => longest(geometry, inode).min(counted),
        false => longest(geometry, inode).min(indirect::dense(geometry, counted)),
    }
}

/// The run that begins at `logical`: at most `most` blocks, and at least one.
pub(crate) fn map(
    geometry: &Geometry,
    store: &MetadataCache,
    inode: &Inode,
    logical: u32,
    most: u32,
) -> Result<MappedRange> {
    let run = match inode.flags.contains(InodeFlags::EXTENTS) {
        true => extents::map(geometry, store, inode, logical),
        false => indirect::map(geometry, store, inode, logical, most),
    };
    let run = run.and_then(|run| match run.place {
        Mapping::Written(start) | Mapping::Unwritten(start) => {
            store.check_file_blocks(start, run.length.into())?;
            Ok(run)
        }
        Mapping::Hole => Ok(run),
    });
    let run = run.map_err(|error| error.of_inode(inode.number))?;
    Ok(MappedRange { length: run.length.min(most.max(1)), ..run })
}
