//! Attributes of an inode, as `stat` and `statx` return them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use shunt_fuse_abi as abi;

use super::device_number::decode_device;

/// Seconds and nanoseconds since the epoch; seconds may be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub seconds: i64,
    /// Nanoseconds within the second, 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// Makes a time from its two parts; nanoseconds above 999,999,999 are clamped, as the kernel does.
    pub fn new(seconds: i64, nanoseconds: u32) -> Self {
        Self { seconds, nanoseconds: nanoseconds.min(999_999_999) }
    }

    /// The current wall-clock time.
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    pub(crate) fn statx(self) -> abi::StatxTimestamp {
        abi::StatxTimestamp { tv_sec: self.seconds, tv_nsec: self.nanoseconds, ..Default::default() }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self::new(after.as_secs() as i64, after.subsec_nanos()),
            Err(before) => {
                let before = before.duration();
                let (mut seconds, mut nanoseconds) = (-(before.as_secs() as i64), before.subsec_nanos());
                if nanoseconds > 0 {
                    seconds -= 1;
                    nanoseconds = 1_000_000_000 - nanoseconds;
                }
                Self::new(seconds, nanoseconds)
            }
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let nanoseconds = Duration::from_nanos(time.nanoseconds.into());
        if time.seconds >= 0 {
            UNIX_EPOCH + Duration::from_secs(time.seconds as u64) + nanoseconds
        } else {
            UNIX_EPOCH - Duration::from_secs(time.seconds.unsigned_abs()) + nanoseconds
        }
    }
}

/// The type of an inode: the top four bits of `st_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum FileType {
    /// A named pipe.
    Fifo = 0o010,
    /// A character device.
    CharDevice = 0o020,
    /// A directory.
    Directory = 0o040,
    /// A block device.
    BlockDevice = 0o060,
    /// A regular file.
    Regular = 0o100,
    /// A symbolic link.
    Symlink = 0o120,
    /// A socket.
    Socket = 0o140,
}

impl FileType {
    /// Returns the type that `mode` encodes, or `None` where the bits encode none.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode >> 9 & 0o170 {
            0o010 => Self::Fifo,
            0o020 => Self::CharDevice,
            0o040 => Self::Directory,
            0o060 => Self::BlockDevice,
            0o100 => Self::Regular,
            0o120 => Self::Symlink,
            0o140 => Self::Socket,
            _ => return None,
        })
    }

    /// Returns the `S_IFMT` bits.
    pub fn mode(self) -> u32 {
        (self as u32) << 9
    }

    /// Returns the `d_type` of a directory entry (`DT_REG` and so on).
    pub(crate) fn d_type(self) -> u32 {
        self.mode() >> 12
    }
}

/// Attributes of an inode, as `stat` and `statx` return them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Inode number, as `stat` shows it.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation time, where the file system records it. Only `statx` shows it.
    pub btime: Option<Timestamp>,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Device number of a special file, as [`encode_device`](crate::encode_device) returns it.
    pub rdev: u32,
    /// Preferred size of I/O in bytes.
    pub blksize: u32,
    /// `STATX_ATTR_*` bits that are set (immutable, append, ...).
    pub statx_attributes: u64,
    /// `STATX_ATTR_*` bits that the file system supports.
    pub statx_attributes_mask: u64,
}

impl Attributes {
    /// Returns the type of the inode; an unknown type counts as a regular file.
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(self.mode).unwrap_or(FileType::Regular)
    }

    /// Converts the attributes to their wire format.
    pub fn wire(&self) -> abi::Attr {
        abi::Attr {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.seconds as u64,
            mtime: self.mtime.seconds as u64,
            ctime: self.ctime.seconds as u64,
            atimensec: self.atime.nanoseconds,
            mtimensec: self.mtime.nanoseconds,
            ctimensec: self.ctime.nanoseconds,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: self.blksize,
            flags: 0,
        }
    }

    pub(crate) fn statx_wire(&self) -> abi::Statx {
        const BASIC_STATS: u32 = 0x7ff;
        const BTIME: u32 = 0x800;
        let (rdev_major, rdev_minor) = decode_device(self.rdev);
        abi::Statx {
            mask: BASIC_STATS | if self.btime.is_some() { BTIME } else { 0 },
            blksize: self.blksize,
            attributes: self.statx_attributes,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            mode: self.mode as u16,
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            attributes_mask: self.statx_attributes_mask,
            atime: self.atime.statx(),
            btime: self.btime.unwrap_or_default().statx(),
            ctime: self.ctime.statx(),
            mtime: self.mtime.statx(),
            rdev_major,
            rdev_minor,
            ..Default::default()
        }
    }
}
