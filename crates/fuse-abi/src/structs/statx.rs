//! STATX (7.39). The layout of [`Statx`] is that of statx(2).

wire! {
    /// A time stamp.
    pub struct StatxTimestamp {
        /// Seconds since the epoch.
        pub tv_sec: i64,
        /// Nanoseconds, below 1,000,000,000.
        pub tv_nsec: u32,
        /// Zero.
        pub __reserved: i32,
    }

    /// Attributes in the layout of statx(2).
    pub struct Statx {
        /// Valid fields (`STATX_...`).
        pub mask: u32,
        /// Preferred I/O size in bytes.
        pub blksize: u32,
        /// `STATX_ATTR_...`.
        pub attributes: u64,
        /// Number of hard links.
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group id.
        pub gid: u32,
        /// Type and permissions.
        pub mode: u16,
        /// Zero.
        pub __spare0: [u16; 1],
        /// Inode number.
        pub ino: u64,
        /// Size in bytes.
        pub size: u64,
        /// Space in use, in units of 512 bytes.
        pub blocks: u64,
        /// Supported bits of `attributes`.
        pub attributes_mask: u64,
        /// Time of last access.
        pub atime: StatxTimestamp,
        /// Time of birth.
        pub btime: StatxTimestamp,
        /// Time of last change of the attributes.
        pub ctime: StatxTimestamp,
        /// Time of last change of the data.
        pub mtime: StatxTimestamp,
        /// Major number of a device node.
        pub rdev_major: u32,
        /// Minor number of a device node.
        pub rdev_minor: u32,
        /// Major number of the device that holds the file.
        pub dev_major: u32,
        /// Minor number of the device that holds the file.
        pub dev_minor: u32,
        /// Zero.
        pub __spare2: [u64; 14],
    }

    /// Argument of STATX.
    pub struct StatxIn {
        /// [`crate::GetattrFlags`].
        pub getattr_flags: u32,
        /// Zero.
        pub reserved: u32,
        /// File handle, valid with [`crate::GetattrFlags::FH`].
        pub fh: u64,
        /// `AT_STATX_...`.
        pub sx_flags: u32,
        /// Requested fields (`STATX_...`).
        pub sx_mask: u32,
    }

    /// Reply to STATX.
    pub struct StatxOut {
        /// Cache time of the attributes, seconds.
        pub attr_valid: u64,
        /// Cache time of the attributes, nanoseconds.
        pub attr_valid_nsec: u32,
        /// Reserved; zero.
        pub flags: u32,
        /// Zero.
        pub spare: [u64; 2],
        /// The attributes.
        pub stat: Statx,
    }
}
