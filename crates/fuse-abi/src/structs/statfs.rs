//! STATFS: statistics of the file system.

wire! {
    /// Statistics of the whole file system.
    pub struct Kstatfs {
        /// Size, in units of `frsize`.
        pub blocks: u64,
        /// Free space, in units of `frsize`.
        pub bfree: u64,
        /// Free space for users other than root, in units of `frsize`.
        pub bavail: u64,
        /// Number of inodes.
        pub files: u64,
        /// Number of free inodes.
        pub ffree: u64,
        /// Preferred I/O size in bytes.
        pub bsize: u32,
        /// Longest name in bytes.
        pub namelen: u32,
        /// Unit of the block counts, in bytes.
        pub frsize: u32,
        /// Zero.
        pub padding: u32,
        /// Zero.
        pub spare: [u32; 6],
    }

    /// Reply to STATFS.
    pub struct StatfsOut {
        /// The statistics.
        pub st: Kstatfs,
    }
}
