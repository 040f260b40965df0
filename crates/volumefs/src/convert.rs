//! Conversion between the replica's types and those of FUSE.

use shunt_fuse::{Attributes, Errno, FileType, Request, SetAttributes, SetTime, Timestamp};
use shunt_volume::id::OwnerId;
use shunt_volume::object::{Kind, Time};
use shunt_volume::replica::{Inode, NewObject, SetAttr};

pub(crate) fn timestamp(time: Time) -> Timestamp {
    Timestamp::new(time.0.div_euclid(1_000_000_000), time.0.rem_euclid(1_000_000_000) as u32)
}

/// Times beyond the years 1677 and 2262 are clamped.
fn time(timestamp: Timestamp) -> Time {
    let seconds = timestamp.seconds.saturating_mul(1_000_000_000);
    Time(seconds.saturating_add(timestamp.nanoseconds.into()))
}

fn set_time(set: SetTime) -> Time {
    match set {
        SetTime::Now => time(Timestamp::now()),
        SetTime::At(at) => time(at),
    }
}

pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Regular => FileType::Regular,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::Character(..) => FileType::CharDevice,
        Kind::Block(..) => FileType::BlockDevice,
    }
}

pub(crate) fn attributes(inode: &Inode) -> Attributes {
    let rdev = match inode.kind {
        Kind::Character(major, minor) | Kind::Block(major, minor) => shunt_fuse::encode_device(major, minor),
        _ => 0,
    };
    // A directory has its name, its `.`, and the `..` of each subdirectory.
    let directory = if inode.links > 0 { inode.subdirs.saturating_add(2) } else { 0 };
    Attributes {
        ino: inode.ino,
        size: inode.size,
        // Reported wherever the bytes are: programs that copy treat a file without blocks as one hole.
        blocks: if inode.is_regular() { inode.size.div_ceil(512) } else { 0 },
        atime: timestamp(inode.last_opened),
        mtime: timestamp(inode.modified),
        ctime: timestamp(inode.changed),
        mode: u32::from(inode.mode) | file_type(inode.kind).mode(),
        nlink: if inode.is_directory() { directory } else { inode.links },
        uid: inode.owner.0,
        gid: inode.group.0,
        rdev,
        blksize: 4096,
        ..Attributes::default()
    }
}

pub(crate) fn kind(mode: u32, device: u32) -> Result<Kind, Errno> {
    let (major, minor) = shunt_fuse::decode_device(device);
    Ok(match FileType::from_mode(mode) {
        Some(FileType::Regular) | None => Kind::Regular,
        Some(FileType::Fifo) => Kind::Fifo,
        Some(FileType::Socket) => Kind::Socket,
        Some(FileType::CharDevice) => Kind::Character(major, minor),
        Some(FileType::BlockDevice) => Kind::Block(major, minor),
        Some(FileType::Directory | FileType::Symlink) => return Err(Errno::INVAL),
    })
}

pub(crate) fn new<'a>(request: &Request<'_>, kind: Kind, mode: u32, target: &'a [u8]) -> NewObject<'a> {
    let (owner, group) = (OwnerId(request.uid()), OwnerId(request.gid()));
    NewObject { kind, mode: (mode & 0o7777) as u16, owner, group, target }
}

/// Converts all attributes but the size.
pub(crate) fn set(inode: &Inode, set: &SetAttributes) -> SetAttr {
    let changes_owner = set.uid.is_some() || set.gid.is_some();
    // A change of owner also leaves clearing setid bits to the daemon.
    let ends = set.kill_suidgid || changes_owner && set.mode.is_none();
    SetAttr {
        mode: set.mode.map(|mode| (mode & 0o7777) as u16),
        owner: set.uid.map(OwnerId),
        group: set.gid.map(OwnerId),
        modified: set.mtime.map(set_time),
        last_opened: set.atime.map(set_time),
        drop_privileges: ends && !inode.is_directory(),
    }
}
