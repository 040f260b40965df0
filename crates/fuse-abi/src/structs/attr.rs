//! Attributes: GETATTR, SETATTR, and the entry in replies to LOOKUP and the creating operations.

wire! {
    /// Attributes of a node.
    pub struct Attr {
        /// Inode number as `stat` shows it.
        pub ino: u64,
        /// Size in bytes.
        pub size: u64,
        /// Space in use, in units of 512 bytes.
        pub blocks: u64,
        /// Time of last access, seconds since the epoch (a signed number in 64 bits).
        pub atime: u64,
        /// Time of last change of the data, seconds since the epoch (signed).
        pub mtime: u64,
        /// Time of last change of the attributes, seconds since the epoch (signed).
        pub ctime: u64,
        /// Nanoseconds of `atime`, below 1,000,000,000.
        pub atimensec: u32,
        /// Nanoseconds of `mtime`, below 1,000,000,000.
        pub mtimensec: u32,
        /// Nanoseconds of `ctime`, below 1,000,000,000.
        pub ctimensec: u32,
        /// Type and permissions (`S_IF...` and the twelve mode bits).
        pub mode: u32,
        /// Number of hard links.
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group id.
        pub gid: u32,
        /// Device number of a device node, in the kernel's 32-bit encoding.
        pub rdev: u32,
        /// Preferred I/O size in bytes; 0 leaves the choice to the kernel.
        pub blksize: u32,
        /// [`crate::AttrFlags`] (7.32).
        pub flags: u32,
    }

    /// Argument of GETATTR.
    pub struct GetattrIn {
        /// [`crate::GetattrFlags`].
        pub getattr_flags: u32,
        /// Zero.
        pub dummy: u32,
        /// File handle, valid with [`crate::GetattrFlags::FH`].
        pub fh: u64,
    }

    /// Reply to GETATTR and SETATTR.
    pub struct AttrOut {
        /// Cache time of the attributes, seconds.
        pub attr_valid: u64,
        /// Cache time of the attributes, nanoseconds.
        pub attr_valid_nsec: u32,
        /// Zero.
        pub dummy: u32,
        /// The attributes.
        pub attr: Attr,
    }

    /// Argument of SETATTR. Only the fields named in `valid` are used.
    pub struct SetattrIn {
        /// [`crate::SetattrValid`].
        pub valid: u32,
        /// Zero.
        pub padding: u32,
        /// File handle.
        pub fh: u64,
        /// New size in bytes.
        pub size: u64,
        /// Lock owner of the caller, for a truncation under mandatory locks.
        pub lock_owner: u64,
        /// New access time, seconds (signed).
        pub atime: u64,
        /// New modification time, seconds (signed).
        pub mtime: u64,
        /// New change time, seconds (signed).
        pub ctime: u64,
        /// Nanoseconds of `atime`.
        pub atimensec: u32,
        /// Nanoseconds of `mtime`.
        pub mtimensec: u32,
        /// Nanoseconds of `ctime`.
        pub ctimensec: u32,
        /// New mode; may carry the type bits.
        pub mode: u32,
        /// Zero.
        pub unused4: u32,
        /// New owner.
        pub uid: u32,
        /// New group.
        pub gid: u32,
        /// Zero.
        pub unused5: u32,
    }

    /// Reply to LOOKUP and to the operations that create a name.
    pub struct EntryOut {
        /// Id of the node; 0 makes a negative entry that is cached for `entry_valid`.
        pub nodeid: u64,
        /// Generation: the pair of node id and generation is never reused while the file system is mounted.
        pub generation: u64,
        /// Cache time of the name, seconds.
        pub entry_valid: u64,
        /// Cache time of the attributes, seconds.
        pub attr_valid: u64,
        /// Nanoseconds of `entry_valid`.
        pub entry_valid_nsec: u32,
        /// Nanoseconds of `attr_valid`.
        pub attr_valid_nsec: u32,
        /// The attributes.
        pub attr: Attr,
    }
}
