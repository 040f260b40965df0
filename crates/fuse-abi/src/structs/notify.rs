//! Bodies of notifications, each after an [`crate::OutHeader`], and the kernel's reply to RETRIEVE.

wire! {
    /// Body of `NOTIFY_POLL`.
    pub struct NotifyPollWakeupOut {
        /// The kernel's handle from [`crate::PollIn::kh`].
        pub kh: u64,
    }

    /// Body of `NOTIFY_INVAL_INODE`.
    pub struct NotifyInvalInodeOut {
        /// Node id.
        pub ino: u64,
        /// First byte to drop; a negative offset drops the attributes only.
        pub off: i64,
        /// Number of bytes; 0 or less extends to the end.
        pub len: i64,
    }

    /// Body of `NOTIFY_INVAL_ENTRY`; the name with a NUL follows.
    pub struct NotifyInvalEntryOut {
        /// Node of the directory.
        pub parent: u64,
        /// Length of the name in bytes, without a NUL.
        pub namelen: u32,
        /// [`crate::ExpireFlags`].
        pub flags: u32,
    }

    /// Body of `NOTIFY_DELETE`; the name with a NUL follows.
    pub struct NotifyDeleteOut {
        /// Node of the directory.
        pub parent: u64,
        /// The node that lost the name; no effect if the name refers to another node.
        pub child: u64,
        /// Length of the name in bytes, without a NUL.
        pub namelen: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Body of `NOTIFY_STORE`; `size` bytes of data follow.
    pub struct NotifyStoreOut {
        /// Node id.
        pub nodeid: u64,
        /// Byte offset.
        pub offset: u64,
        /// Length of the data in bytes.
        pub size: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Body of `NOTIFY_RETRIEVE`.
    pub struct NotifyRetrieveOut {
        /// `unique` of the NOTIFY_REPLY request that the kernel will send.
        pub notify_unique: u64,
        /// Node id.
        pub nodeid: u64,
        /// Byte offset.
        pub offset: u64,
        /// Maximum number of bytes to return.
        pub size: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Argument of NOTIFY_REPLY, laid out like [`crate::WriteIn`]; `size` bytes of data follow.
    pub struct NotifyRetrieveIn {
        /// Zero.
        pub dummy1: u64,
        /// Byte offset.
        pub offset: u64,
        /// Length of the data in bytes.
        pub size: u32,
        /// Zero.
        pub dummy2: u32,
        /// Zero.
        pub dummy3: u64,
        /// Zero.
        pub dummy4: u64,
    }

    /// Body of `NOTIFY_PRUNE` (7.45); `count` node ids of 8 bytes follow.
    pub struct NotifyPruneOut {
        /// Number of node ids.
        pub count: u32,
        /// Zero.
        pub padding: u32,
        /// Zero.
        pub spare: u64,
    }
}
