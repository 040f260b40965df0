//! What a block was verified as.

use crate::superblock::Geometry;
use crate::{directory, map, xattr};

/// What a block was verified as: its kind, and whose it is. A block that two structures claim is verified for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum BlockKind {
    /// The block that holds the superblock.
    Superblock,
    /// Group descriptors, from this number on. Each carries its sum from the moment it is changed.
    Descriptors(u32),
    /// The block bitmap of this group; its sum lies in the group's descriptor.
    BlockBitmap(u32),
    /// The inode bitmap of this group; its sum lies in the group's descriptor.
    InodeBitmap(u32),
    /// Inodes; each is verified by itself, and carries its sum from the moment it is changed.
    Inodes,
    /// A node of this inode's extent tree (inode, generation, depth).
    Extents(u32, u32, u16),
    /// Block numbers of this inode.
    Indirect,
    /// A block of this directory, leaf or node (inode, generation).
    Directory(u32, u32),
    /// Extended attributes.
    Xattrs,
    /// A block of the orphan file (inode, generation).
    Orphans(u32, u32),
}

impl BlockKind {
    /// Fills in the checksum of a block that carries its own. Done right after each change, so that a block in memory
    /// is at any time what it would be on the device.
    pub(crate) fn fill_checksum(self, geometry: &Geometry, number: u64, bytes: &mut [u8]) {
        let Some(seed) = geometry.checksum_seed else { return };
        let owner = |inode, generation| crate::inode::owner_seed(seed, inode, generation);
        match self {
            Self::Extents(inode, generation, _) => map::fill_extent_sum(owner(inode, generation), bytes),
            Self::Directory(inode, generation) => directory::fill_sum(owner(inode, generation), bytes),
            Self::Xattrs => xattr::fill_sum(seed, number, bytes),
            Self::Orphans(inode, generation) => {
                crate::orphans::fill_sum(owner(inode, generation), number, bytes);
            }
            Self::Superblock
            | Self::Descriptors(_)
            | Self::BlockBitmap(_)
            | Self::InodeBitmap(_)
            | Self::Inodes
            | Self::Indirect => {}
        }
    }
}
