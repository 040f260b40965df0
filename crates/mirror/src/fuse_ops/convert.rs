//! Conversions between the engine's types and those of FUSE.

use rustix::fs::{Statx, StatxTimestamp};
use shunt_fuse::{Attributes, Errno, FileType, Name, Request, SetAttributes, SetTime, Timestamp, XattrReply};

use crate::lower::{Caller, Changes, Component, NewTime, XattrAnswer};

pub(super) fn component(name: Name<'_>) -> Result<Component<'_>, Errno> {
    Component::new(name.as_cstr())
}

pub(super) fn caller(request: &Request<'_>) -> Caller {
    let pid = i32::try_from(request.pid()).ok().and_then(rustix::process::Pid::from_raw);
    Caller { uid: request.uid(), gid: request.gid(), group: request.supplementary_groups().next(), pid }
}

fn timestamp(time: StatxTimestamp) -> Timestamp {
    Timestamp::new(time.tv_sec, time.tv_nsec)
}

pub(super) fn attributes(stat: &Statx) -> Attributes {
    const BTIME: u32 = rustix::fs::StatxFlags::BTIME.bits();
    Attributes {
        ino: stat.stx_ino,
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        atime: timestamp(stat.stx_atime),
        mtime: timestamp(stat.stx_mtime),
        ctime: timestamp(stat.stx_ctime),
        btime: (stat.stx_mask & BTIME != 0).then(|| timestamp(stat.stx_btime)),
        mode: stat.stx_mode.into(),
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        rdev: shunt_fuse::encode_device(stat.stx_rdev_major, stat.stx_rdev_minor),
        blksize: stat.stx_blksize,
        statx_attributes: stat.stx_attributes.bits(),
        statx_attributes_mask: stat.stx_attributes_mask.bits(),
    }
}

/// Converts a file type. The engine stats entries of unknown type; if that fails, they count as regular files.
pub(super) fn kind(kind: rustix::fs::FileType) -> FileType {
    FileType::from_mode(kind.as_raw_mode()).unwrap_or(FileType::Regular)
}

fn new_time(time: SetTime) -> NewTime {
    match time {
        SetTime::Now => NewTime::Now,
        SetTime::At(time) => NewTime::At(time.seconds, time.nanoseconds),
    }
}

pub(super) fn changes(set: &SetAttributes) -> Changes {
    Changes {
        mode: set.mode,
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: set.atime.map(new_time),
        mtime: set.mtime.map(new_time),
        handle: set.handle.map(|handle| handle.0),
        kill_setid: set.kill_suidgid,
    }
}

pub(super) fn xattr(answer: XattrAnswer) -> XattrReply {
    match answer {
        XattrAnswer::Size(size) => XattrReply::Size(size as u32),
        XattrAnswer::Bytes(bytes) => XattrReply::Bytes(bytes),
    }
}
