//! Extended attributes: SETXATTR, GETXATTR, LISTXATTR.

wire! {
    /// Argument of SETXATTR with [`crate::InitFlags::SETXATTR_EXT`]; the name with a NUL and the value follow.
    pub struct SetxattrIn {
        /// Length of the value in bytes.
        pub size: u32,
        /// `XATTR_CREATE`, `XATTR_REPLACE` or 0.
        pub flags: u32,
        /// [`crate::SetxattrFlags`] (7.33).
        pub setxattr_flags: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Argument of SETXATTR without [`crate::InitFlags::SETXATTR_EXT`].
    pub struct SetxattrInCompat {
        /// Length of the value in bytes.
        pub size: u32,
        /// `XATTR_CREATE`, `XATTR_REPLACE` or 0.
        pub flags: u32,
    }

    /// Argument of GETXATTR and LISTXATTR; the name with a NUL follows in GETXATTR.
    pub struct GetxattrIn {
        /// Size of the reply buffer in bytes; 0 asks for the size as a [`GetxattrOut`].
        pub size: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Reply to GETXATTR and LISTXATTR of size 0.
    pub struct GetxattrOut {
        /// Length of the value in bytes.
        pub size: u32,
        /// Zero.
        pub padding: u32,
    }
}

impl From<SetxattrInCompat> for SetxattrIn {
    fn from(short: SetxattrInCompat) -> Self {
        Self { size: short.size, flags: short.flags, ..Self::default() }
    }
}
