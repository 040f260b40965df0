//! Inode format: 128 bytes, and more if the file system was made with larger inodes.
#![allow(missing_docs, reason = "flags and fields are named as in the format's documentation")]

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

bitflags::bitflags! {
    /// `i_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        const SECRM = 0x1;
        const UNRM = 0x2;
        const COMPR = 0x4;
        const SYNC = 0x8;
        const IMMUTABLE = 0x10;
        const APPEND = 0x20;
        const NODUMP = 0x40;
        const NOATIME = 0x80;
        const ENCRYPT = 0x800;
        const INDEX = 0x1000;
        const JOURNAL_DATA = 0x4000;
        const NOTAIL = 0x8000;
        const DIRSYNC = 0x1_0000;
        const TOPDIR = 0x2_0000;
        const HUGE_FILE = 0x4_0000;
        const EXTENTS = 0x8_0000;
        const VERITY = 0x10_0000;
        const EA_INODE = 0x20_0000;
        const DAX = 0x200_0000;
        const INLINE_DATA = 0x1000_0000;
        const PROJINHERIT = 0x2000_0000;
        const CASEFOLD = 0x4000_0000;
    }
}

/// `struct ext4_inode`, up to the last named field. Fields that an inode has no room for read as zero.
#[derive(Debug, Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawInode {
    pub mode: U16,
    pub uid: U16,
    pub size_lo: U32,
    pub atime: U32,
    pub ctime: U32,
    pub mtime: U32,
    pub dtime: U32,
    pub gid: U16,
    pub links_count: U16,
    pub blocks_lo: U32,
    pub flags: U32,
    pub version: U32,
    pub block: [u8; 60],
    pub generation: U32,
    pub file_acl_lo: U32,
    pub size_high: U32,
    pub obso_faddr: U32,
    pub blocks_high: U16,
    pub file_acl_high: U16,
    pub uid_high: U16,
    pub gid_high: U16,
    pub checksum_lo: U16,
    pub reserved: U16,
    pub extra_isize: U16,
    pub checksum_hi: U16,
    pub ctime_extra: U32,
    pub mtime_extra: U32,
    pub atime_extra: U32,
    pub crtime: U32,
    pub crtime_extra: U32,
    pub version_hi: U32,
    pub projid: U32,
}

impl RawInode {
    /// Size in bytes of the fields that every inode has.
    pub const BASE: usize = 128;
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawInode>() == 160);
    assert!(offset_of!(RawInode, block) == 0x28);
    assert!(offset_of!(RawInode, checksum_lo) == 0x7c);
    assert!(offset_of!(RawInode, extra_isize) == RawInode::BASE);
    assert!(offset_of!(RawInode, projid) == 0x9c);
};
