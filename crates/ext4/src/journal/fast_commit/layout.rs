//! On-disk format of fast commits. Unlike the rest of the journal it is little-endian, and a sequence of unaligned records, each
//! of a tag, a length and a value.
#![allow(missing_docs, reason = "named as in the format's documentation")]

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `fc_tag`.
pub(crate) mod tag {
    pub(crate) const ADD_RANGE: u16 = 1;
    pub(crate) const DEL_RANGE: u16 = 2;
    pub(crate) const CREAT: u16 = 3;
    pub(crate) const LINK: u16 = 4;
    pub(crate) const UNLINK: u16 = 5;
    pub(crate) const INODE: u16 = 6;
    pub(crate) const PAD: u16 = 7;
    pub(crate) const TAIL: u16 = 8;
    pub(crate) const HEAD: u16 = 9;
}

/// `struct ext4_fc_tl`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RecordHeader {
    pub(crate) tag: U16,
    pub(crate) len: U16,
}

/// `struct ext4_fc_head`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Head {
    pub(crate) features: U32,
    pub(crate) tid: U32,
}

/// `struct ext4_fc_add_range`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct AddRange {
    pub(crate) ino: U32,
    pub(crate) ex: crate::layout::Extent,
}

/// `struct ext4_fc_del_range`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct DelRange {
    pub(crate) ino: U32,
    pub(crate) lblk: U32,
    pub(crate) len: U32,
}

/// `struct ext4_fc_dentry_info`, followed by the name.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Dentry {
    pub(crate) parent_ino: U32,
    pub(crate) ino: U32,
}

/// `struct ext4_fc_tail`. The rest of the block is unused.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Tail {
    pub(crate) tid: U32,
    pub(crate) crc: U32,
}

const _: () = {
    assert!(size_of::<RecordHeader>() == 4);
    assert!(size_of::<AddRange>() == 16);
    assert!(size_of::<DelRange>() == 12);
    assert!(size_of::<Dentry>() == 8);
    assert!(size_of::<Tail>() == 8);
};
