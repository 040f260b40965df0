//! Open files: OPEN, RELEASE, FLUSH, FSYNC, ACCESS, and their counterparts for directories.

wire! {
    /// Argument of OPEN and OPENDIR.
    pub struct OpenIn {
        /// `O_...` flags, without `O_CREAT`, `O_EXCL` and `O_NOCTTY`.
        pub flags: u32,
        /// [`crate::OpenFlags`].
        pub open_flags: u32,
    }

    /// Reply to OPEN and OPENDIR; after an [`crate::EntryOut`] the reply to CREATE and TMPFILE.
    pub struct OpenOut {
        /// File handle, sent back with every later request on this open file.
        pub fh: u64,
        /// [`crate::OpenOutFlags`].
        pub open_flags: u32,
        /// Id of a registered backing file, valid with [`crate::OpenOutFlags::PASSTHROUGH`] (7.40).
        pub backing_id: i32,
    }

    /// Argument of RELEASE and RELEASEDIR.
    pub struct ReleaseIn {
        /// File handle.
        pub fh: u64,
        /// `O_...` flags of the open file.
        pub flags: u32,
        /// [`crate::ReleaseFlags`].
        pub release_flags: u32,
        /// Lock owner of the last holder.
        pub lock_owner: u64,
    }

    /// Argument of FLUSH, sent at every `close`.
    pub struct FlushIn {
        /// File handle.
        pub fh: u64,
        /// Zero.
        pub unused: u32,
        /// Zero.
        pub padding: u32,
        /// The owner whose POSIX locks are released.
        pub lock_owner: u64,
    }

    /// Argument of FSYNC and FSYNCDIR.
    pub struct FsyncIn {
        /// File handle.
        pub fh: u64,
        /// [`crate::FsyncFlags`].
        pub fsync_flags: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Argument of SYNCFS.
    pub struct SyncfsIn {
        /// Zero.
        pub padding: u64,
    }

    /// Argument of ACCESS.
    pub struct AccessIn {
        /// `R_OK`, `W_OK`, `X_OK` or `F_OK`.
        pub mask: u32,
        /// Zero.
        pub padding: u32,
    }
}
