//! Kinds of metadata blocks: the structure as which a cached block was verified, and the way its checksum is computed.

use crate::checksum::owner_seed;
use crate::superblock::Geometry;

/// The structure, and its owner, as which a block was verified. A block that two structures refer to is verified once for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum BlockKind {
    /// The block that holds the superblock.
    Superblock,
    /// The n-th block of group descriptors. Each descriptor carries its checksum from the moment it is changed.
    Descriptors(u32),
    /// Block bitmap of this group; its checksum is in the group's descriptor.
    BlockBitmap(u32),
    /// Inode bitmap of this group; its checksum is in the group's descriptor.
    InodeBitmap(u32),
    /// Part of an inode table; each inode is verified separately, and carries its checksum from the moment it is changed.
    Inodes,
    /// Node of the extent tree of this inode (inode, generation, depth).
    Extents(u32, u32, u16),
    /// Indirect block: block numbers of an inode.
    Indirect,
    /// Leaf or index block of this directory (inode, generation).
    Directory(u32, u32),
    /// Block of extended attributes.
    Xattrs,
    /// Block of the orphan file (inode, generation).
    Orphans(u32, u32),
}

/// The functions that fill in the checksums of blocks which carry their own, registered by the modules that own the formats:
/// as the triggers of jbd2 are, so that the cache knows none of these formats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChecksumTriggers {
    /// A node of an extent tree, by the seed of its inode.
    pub(crate) extents: fn(u32, &mut [u8]),
    /// A block of a directory, by the seed of its inode.
    pub(crate) directory: fn(u32, &mut [u8]),
    /// A block of extended attributes, by the seed of the file system and its number.
    pub(crate) xattrs: fn(u32, u64, &mut [u8]),
    /// A block of the orphan file, by the seed of its inode and its number.
    pub(crate) orphans: fn(u32, u64, &mut [u8]),
}

impl BlockKind {
    /// Fills in the checksum of a block that carries its own. Called right after each change, so that a block in memory is at
    /// any time as it would be on the device.
    pub(crate) fn fill_checksum(
        self,
        triggers: &ChecksumTriggers,
        geometry: &Geometry,
        number: u64,
        bytes: &mut [u8],
    ) {
        let Some(seed) = geometry.checksum_seed else { return };
        let owner = |inode, generation| owner_seed(seed, inode, generation);
        match self {
            Self::Extents(inode, generation, _) => (triggers.extents)(owner(inode, generation), bytes),
            Self::Directory(inode, generation) => (triggers.directory)(owner(inode, generation), bytes),
            Self::Xattrs => (triggers.xattrs)(seed, number, bytes),
            Self::Orphans(inode, generation) => (triggers.orphans)(owner(inode, generation), number, bytes),
            Self::Superblock
            | Self::Descriptors(_)
            | Self::BlockBitmap(_)
            | Self::InodeBitmap(_)
            | Self::Inodes
            | Self::Indirect => {}
        }
    }
}
