//! Conversion of inodes to FUSE attributes.

use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{Inode, Kind, Time};
use shunt_fuse::{Attributes, FileType, Timestamp};

/// `STATX_ATTR_*` bits and the corresponding inode flags.
const STATX_FLAGS: [(u64, InodeFlags); 6] = [
    (0x4, InodeFlags::COMPR),
    (0x10, InodeFlags::IMMUTABLE),
    (0x20, InodeFlags::APPEND),
    (0x40, InodeFlags::NODUMP),
    (0x800, InodeFlags::ENCRYPT),
    (0x10_0000, InodeFlags::VERITY),
];

pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Fifo => FileType::Fifo,
        Kind::CharDevice => FileType::CharDevice,
        Kind::Directory => FileType::Directory,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Regular => FileType::Regular,
        Kind::Symlink => FileType::Symlink,
        Kind::Socket => FileType::Socket,
    }
}

pub(crate) fn timestamp(time: Time) -> Timestamp {
    Timestamp::new(time.seconds, time.nanoseconds)
}

/// Returns the attributes of an inode for `stat` and `statx`.
pub(crate) fn attributes(inode: &Inode, block_size: u32) -> Attributes {
    let (major, minor) = inode.device().unwrap_or_default();
    let set = STATX_FLAGS.iter().filter(|(_, flag)| inode.flags.contains(*flag));
    Attributes {
        ino: inode.number.into(),
        size: inode.size,
        blocks: inode.blocks,
        atime: timestamp(inode.atime),
        mtime: timestamp(inode.mtime),
        ctime: timestamp(inode.ctime),
        btime: inode.crtime.map(timestamp),
        mode: file_type(inode.kind).mode() | u32::from(inode.permissions),
        nlink: inode.links,
        uid: inode.uid,
        gid: inode.gid,
        rdev: shunt_fuse::encode_device(major, minor),
        blksize: block_size,
        statx_attributes: set.map(|(bit, _)| bit).sum(),
        statx_attributes_mask: STATX_FLAGS.iter().map(|(bit, _)| bit).sum(),
    }
}
