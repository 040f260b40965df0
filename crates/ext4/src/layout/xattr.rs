//! Extended attribute format: in the inode behind its fields, and in a separate block.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `h_magic`, in the block and in the inode.
pub(crate) const XATTR_MAGIC: u32 = 0xea02_0000;

/// `struct ext4_xattr_header`: at the start of an attribute block. In an inode, there is only the magic.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in the format's documentation, without the prefix h_")]
pub(crate) struct XattrHeader {
    pub(crate) magic: U32,
    pub(crate) refcount: U32,
    pub(crate) blocks: U32,
    pub(crate) hash: U32,
    pub(crate) checksum: U32,
    pub(crate) reserved: [U32; 3],
}

/// `struct ext4_xattr_entry` without the name that follows it.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in the format's documentation, without the prefix e_")]
pub(crate) struct XattrEntry {
    pub(crate) name_len: u8,
    pub(crate) name_index: u8,
    pub(crate) value_offs: U16,
    pub(crate) value_inum: U32,
    pub(crate) value_size: U32,
    pub(crate) hash: U32,
}

const _: () = {
    assert!(size_of::<XattrHeader>() == 32);
    assert!(size_of::<XattrEntry>() == 16);
};
