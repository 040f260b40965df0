//! Extent tree format: a header followed by entries of 12 bytes. The root is in the inode, every other node in a block.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `eh_magic`.
pub(crate) const EXTENT_MAGIC: u16 = 0xf30a;

/// A length above this value marks an unwritten extent, whose length is reduced by this value.
pub(crate) const UNWRITTEN_ABOVE: u16 = 32768;

/// `struct ext4_extent_header`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in the format's documentation, without the prefix eh_")]
pub(crate) struct ExtentHeader {
    pub(crate) magic: U16,
    pub(crate) entries: U16,
    pub(crate) max: U16,
    pub(crate) depth: U16,
    pub(crate) generation: U32,
}

/// `struct ext4_extent`: an entry of a leaf.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in the format's documentation, without the prefix ee_")]
pub(crate) struct Extent {
    pub(crate) block: U32,
    pub(crate) len: U16,
    pub(crate) start_hi: U16,
    pub(crate) start_lo: U32,
}

/// `struct ext4_extent_idx`: an entry of an inner node.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in the format's documentation, without the prefix ei_")]
pub(crate) struct ExtentIndex {
    pub(crate) block: U32,
    pub(crate) leaf_lo: U32,
    pub(crate) leaf_hi: U16,
    pub(crate) unused: U16,
}

const _: () = {
    assert!(size_of::<ExtentHeader>() == 12);
    assert!(size_of::<Extent>() == 12);
    assert!(size_of::<ExtentIndex>() == 12);
};
