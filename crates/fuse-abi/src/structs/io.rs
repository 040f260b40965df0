//! Data: READ, WRITE, LSEEK, FALLOCATE, COPY_FILE_RANGE, BMAP.

wire! {
    /// Argument of READ, READDIR and READDIRPLUS.
    pub struct ReadIn {
        /// File handle.
        pub fh: u64,
        /// Byte offset; in a directory the cookie of the last record read.
        pub offset: u64,
        /// Maximum size of the reply in bytes.
        pub size: u32,
        /// [`crate::ReadFlags`].
        pub read_flags: u32,
        /// Lock owner, valid with [`crate::ReadFlags::LOCKOWNER`].
        pub lock_owner: u64,
        /// `O_...` flags of the open file.
        pub flags: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Argument of WRITE; `size` bytes of data follow.
    pub struct WriteIn {
        /// File handle.
        pub fh: u64,
        /// Byte offset.
        pub offset: u64,
        /// Length of the data in bytes.
        pub size: u32,
        /// [`crate::WriteFlags`].
        pub write_flags: u32,
        /// Lock owner, valid with [`crate::WriteFlags::LOCKOWNER`].
        pub lock_owner: u64,
        /// `O_...` flags of the open file.
        pub flags: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Reply to WRITE and COPY_FILE_RANGE.
    pub struct WriteOut {
        /// Bytes written.
        pub size: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Argument of LSEEK, sent for `SEEK_DATA` and `SEEK_HOLE` only.
    pub struct LseekIn {
        /// File handle.
        pub fh: u64,
        /// Start of the search, in bytes.
        pub offset: u64,
        /// `SEEK_DATA` or `SEEK_HOLE`.
        pub whence: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Reply to LSEEK.
    pub struct LseekOut {
        /// Byte offset found.
        pub offset: u64,
    }

    /// Argument of FALLOCATE.
    pub struct FallocateIn {
        /// File handle.
        pub fh: u64,
        /// Start of the range in bytes.
        pub offset: u64,
        /// Length of the range in bytes.
        pub length: u64,
        /// `FALLOC_FL_...`.
        pub mode: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Argument of COPY_FILE_RANGE and COPY_FILE_RANGE_64. The header's node is the source.
    pub struct CopyFileRangeIn {
        /// Handle of the source.
        pub fh_in: u64,
        /// Offset in the source, bytes.
        pub off_in: u64,
        /// Node of the destination.
        pub nodeid_out: u64,
        /// Handle of the destination.
        pub fh_out: u64,
        /// Offset in the destination, bytes.
        pub off_out: u64,
        /// Bytes to copy.
        pub len: u64,
        /// Reserved; zero.
        pub flags: u64,
    }

    /// Reply to COPY_FILE_RANGE_64 (7.45).
    pub struct CopyFileRangeOut {
        /// Bytes copied.
        pub bytes_copied: u64,
    }

    /// Argument of BMAP.
    pub struct BmapIn {
        /// Block of the file, in units of `blocksize`.
        pub block: u64,
        /// Size of a block in bytes.
        pub blocksize: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Reply to BMAP.
    pub struct BmapOut {
        /// Block on the device, in units of the request's `blocksize`.
        pub block: u64,
    }
}
