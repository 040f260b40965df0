//! Locks: GETLK, SETLK, SETLKW.

wire! {
    /// A lock on a range of bytes.
    pub struct FileLock {
        /// First byte.
        pub start: u64,
        /// Last byte, inclusive; `i64::MAX` extends to the end of the file.
        pub end: u64,
        /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
        pub r#type: u32,
        /// Process id of the holder.
        pub pid: u32,
    }

    /// Argument of GETLK, SETLK and SETLKW.
    pub struct LkIn {
        /// File handle.
        pub fh: u64,
        /// Lock owner.
        pub owner: u64,
        /// The lock.
        pub lk: FileLock,
        /// [`crate::LkFlags`].
        pub lk_flags: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Reply to GETLK.
    pub struct LkOut {
        /// A conflicting lock, or type `F_UNLCK`.
        pub lk: FileLock,
    }
}
