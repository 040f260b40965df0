//! On-disk format of the journal: big-endian structures, unchecked.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/journal.rst`.
#![allow(missing_docs, reason = "flags and fields are named as in the format's documentation")]

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `h_magic` of every journal block that is not a logged block.
pub const JOURNAL_MAGIC: u32 = 0xc03b_3998;

/// `h_blocktype`.
pub mod block_type {
    pub const DESCRIPTOR: u32 = 1;
    pub const COMMIT: u32 = 2;
    pub const SUPERBLOCK_V1: u32 = 3;
    pub const SUPERBLOCK_V2: u32 = 4;
    pub const REVOKE: u32 = 5;
}

/// `s_checksum_type` and `h_chksum_type`.
pub(crate) mod checksum_type {
    pub(crate) const CRC32: u8 = 1;
    pub(crate) const CRC32C: u8 = 4;
}

bitflags::bitflags! {
    /// `s_feature_compat`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct JournalCompat: u32 {
        /// Checksums of version 1: commit records hold a CRC-32 of the transaction's blocks.
        const CHECKSUM = 0x1;
    }

    /// `s_feature_incompat`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct JournalIncompat: u32 {
        const REVOKE = 0x1;
        const BIT64 = 0x2;
        const ASYNC_COMMIT = 0x4;
        const CSUM_V2 = 0x8;
        const CSUM_V3 = 0x10;
        const FAST_COMMIT = 0x20;
    }

    /// `t_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TagFlags: u32 {
        /// The logged block starts with the journal's magic number, which is replaced by zeros in the journal.
        const ESCAPE = 0x1;
        /// No UUID follows this tag.
        const SAME_UUID = 0x2;
        const DELETED = 0x4;
        /// Last tag of its descriptor.
        const LAST = 0x8;
    }
}

/// `struct journal_header_s`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BlockHeader {
    pub magic: U32,
    pub blocktype: U32,
    pub sequence: U32,
}

impl BlockHeader {
    /// Creates the header of a block of this type.
    pub fn new(blocktype: u32, sequence: u32) -> Self {
        Self { magic: JOURNAL_MAGIC.into(), blocktype: blocktype.into(), sequence: sequence.into() }
    }
}

/// `struct journal_superblock_s`. The fields behind `errno` exist in version 2 only.
#[derive(Debug, Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawJournalSuperblock {
    pub header: BlockHeader,
    pub blocksize: U32,
    pub maxlen: U32,
    pub first: U32,
    pub sequence: U32,
    pub start: U32,
    pub errno: U32,
    pub feature_compat: U32,
    pub feature_incompat: U32,
    pub feature_ro_compat: U32,
    pub uuid: [u8; 16],
    pub nr_users: U32,
    pub dynsuper: U32,
    pub max_transaction: U32,
    pub max_trans_data: U32,
    pub checksum_type: u8,
    pub padding2: [u8; 3],
    pub num_fc_blocks: U32,
    pub head: U32,
    pub padding: [U32; 40],
    pub checksum: U32,
    pub users: [[u8; 16]; 48],
}

/// `struct journal_block_tag3_s`, used with checksums of version 3.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawTag3 {
    pub(crate) blocknr: U32,
    pub(crate) flags: U32,
    pub(crate) blocknr_high: U32,
    pub(crate) checksum: U32,
}

/// `struct journal_block_tag_s`, used without version 3. The high half exists with 64-bit block numbers only.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawTag {
    pub(crate) blocknr: U32,
    pub(crate) checksum: U16,
    pub(crate) flags: U16,
    pub(crate) blocknr_high: U32,
}

/// `struct jbd2_journal_revoke_header_s`, followed by block numbers of 8 bytes (64-bit) or 4 bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RevokeHeader {
    pub(crate) header: BlockHeader,
    /// Number of bytes in use in the block, including this header.
    pub(crate) count: U32,
}

/// `struct commit_header`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommitHeader {
    pub header: BlockHeader,
    pub chksum_type: u8,
    pub chksum_size: u8,
    pub padding: [u8; 2],
    pub chksum: [U32; 8],
    pub commit_sec: U64,
    pub commit_nsec: U32,
}

/// Size in bytes of the checksum in the tail of descriptor and revoke blocks, with checksums of version 2 and 3.
pub const BLOCK_TAIL_BYTES: usize = 4;

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<BlockHeader>() == 12);
    assert!(size_of::<RawJournalSuperblock>() == 1024);
    assert!(offset_of!(RawJournalSuperblock, uuid) == 0x30);
    assert!(offset_of!(RawJournalSuperblock, checksum_type) == 0x50);
    assert!(offset_of!(RawJournalSuperblock, checksum) == 0xfc);
    assert!(size_of::<RawTag3>() == 16);
    assert!(size_of::<RawTag>() == 12);
    assert!(size_of::<RevokeHeader>() == 16);
    assert!(size_of::<CommitHeader>() == 60);
    assert!(offset_of!(CommitHeader, commit_sec) == 0x30);
};
