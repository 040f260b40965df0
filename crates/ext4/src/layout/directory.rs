//! Directory format: lists of entries, and the hash tree that locates the block of a name.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The file type that marks a [`DirTail`].
pub(crate) const TAIL_TYPE: u8 = 0xde;

/// `struct ext4_dir_entry_2` without the name that follows it.
///
/// Without the feature `filetype`, the type's byte is the high byte of the length of the name.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in the format's documentation")]
pub(crate) struct DirEntry {
    pub(crate) inode: U32,
    pub(crate) rec_len: U16,
    pub(crate) name_len: u8,
    pub(crate) file_type: u8,
}

/// `struct ext4_dir_entry_tail`: the checksum of a leaf, in the form of an entry without inode or name.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in the format's documentation")]
pub(crate) struct DirTail {
    pub(crate) reserved_zero1: U32,
    pub(crate) rec_len: U16,
    pub(crate) reserved_zero2: u8,
    pub(crate) reserved_ft: u8,
    pub(crate) checksum: U32,
}

/// `struct dx_root_info`: behind the entries of `.` and `..` in the first block of an indexed directory.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in the format's documentation")]
pub(crate) struct DxRootInfo {
    pub(crate) reserved_zero: U32,
    pub(crate) hash_version: u8,
    pub(crate) info_length: u8,
    pub(crate) indirect_levels: u8,
    pub(crate) unused_flags: u8,
}

/// `struct dx_countlimit`: occupies the place of the first entry's hash.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in the format's documentation")]
pub(crate) struct DxCountLimit {
    pub(crate) limit: U16,
    pub(crate) count: U16,
}

/// `struct dx_entry`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in the format's documentation")]
pub(crate) struct DxEntry {
    pub(crate) hash: U32,
    pub(crate) block: U32,
}

const _: () = {
    assert!(size_of::<DirEntry>() == 8);
    assert!(size_of::<DirTail>() == 12);
    assert!(size_of::<DxRootInfo>() == 8);
    assert!(size_of::<DxEntry>() == 8);
};
