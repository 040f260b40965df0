//! Extended attribute format: in the inode behind its fields, and in a separate block.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `h_magic`, in the block and in the inode.
pub const XATTR_MAGIC: u32 = 0xea02_0000;

/// `struct ext4_xattr_header`: at the start of an attribute block. In an inode, there is only the magic.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in the format's documentation, without the prefix h_")]
pub struct XattrHeader {
    pub magic: U32,
    pub refcount: U32,
    pub blocks: U32,
    pub hash: U32,
    pub checksum: U32,
    pub reserved: [U32; 3],
}

/// `struct ext4_xattr_entry` without the name that follows it.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in the format's documentation, without the prefix e_")]
pub struct XattrEntry {
    pub name_len: u8,
    pub name_index: u8,
    pub value_offs: U16,
    pub value_inum: U32,
    pub value_size: U32,
    pub hash: U32,
}

const _: () = {
    assert!(size_of::<XattrHeader>() == 32);
    assert!(size_of::<XattrEntry>() == 16);
};
