//! On-disk format of fast commits. Unlike the rest of the journal it is little-endian, and a sequence of unaligned records, each
//! of a tag, a length and a value.
#![allow(missing_docs, reason = "named as in the format's documentation")]

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `fc_tag`.
pub mod tag {
    pub const ADD_RANGE: u16 = 1;
    pub const DEL_RANGE: u16 = 2;
    pub const CREAT: u16 = 3;
    pub const LINK: u16 = 4;
    pub const UNLINK: u16 = 5;
    pub const INODE: u16 = 6;
    pub const PAD: u16 = 7;
    pub const TAIL: u16 = 8;
    pub const HEAD: u16 = 9;
}

/// `struct ext4_fc_tl`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RecordHeader {
    pub tag: U16,
    pub len: U16,
}

/// `struct ext4_fc_head`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Head {
    pub features: U32,
    pub tid: U32,
}

/// `struct ext4_fc_add_range`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AddRange {
    pub ino: U32,
    pub ex: crate::layout::Extent,
}

/// `struct ext4_fc_del_range`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DelRange {
    pub ino: U32,
    pub lblk: U32,
    pub len: U32,
}

/// `struct ext4_fc_dentry_info`, followed by the name.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Dentry {
    pub parent_ino: U32,
    pub ino: U32,
}

/// `struct ext4_fc_tail`. The rest of the block is unused.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Tail {
    pub tid: U32,
    pub crc: U32,
}

const _: () = {
    assert!(size_of::<RecordHeader>() == 4);
    assert!(size_of::<AddRange>() == 16);
    assert!(size_of::<DelRange>() == 12);
    assert!(size_of::<Dentry>() == 8);
    assert!(size_of::<Tail>() == 8);
};
