//! Group descriptor format: locations of bitmaps and inode table, free counts and checksums.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

bitflags::bitflags! {
    /// Initialisation state of a group.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap is uninitialised: all inodes are free.
        const INODE_UNINIT = 0x1;
        /// The block bitmap is uninitialised: only the group's own metadata is in use.
        const BLOCK_UNINIT = 0x2;
        /// The inode table is zeroed.
        const INODE_ZEROED = 0x4;
    }
}

/// `struct ext4_group_desc`, 64 bytes; without the feature `64bit`, only the first 32 exist.
#[derive(Debug, Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in the format's documentation, without the prefix bg_")]
pub struct GroupDescriptor {
    pub block_bitmap_lo: U32,
    pub inode_bitmap_lo: U32,
    pub inode_table_lo: U32,
    pub free_blocks_count_lo: U16,
    pub free_inodes_count_lo: U16,
    pub used_dirs_count_lo: U16,
    pub flags: U16,
    pub exclude_bitmap_lo: U32,
    pub block_bitmap_csum_lo: U16,
    pub inode_bitmap_csum_lo: U16,
    pub itable_unused_lo: U16,
    pub checksum: U16,
    pub block_bitmap_hi: U32,
    pub inode_bitmap_hi: U32,
    pub inode_table_hi: U32,
    pub free_blocks_count_hi: U16,
    pub free_inodes_count_hi: U16,
    pub used_dirs_count_hi: U16,
    pub itable_unused_hi: U16,
    pub exclude_bitmap_hi: U32,
    pub block_bitmap_csum_hi: U16,
    pub inode_bitmap_csum_hi: U16,
    pub reserved: U32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<GroupDescriptor>() == 64);
    assert!(offset_of!(GroupDescriptor, checksum) == 0x1e);
    assert!(offset_of!(GroupDescriptor, block_bitmap_hi) == 0x20);
};
