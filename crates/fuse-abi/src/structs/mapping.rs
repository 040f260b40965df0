//! DAX mappings of virtiofs: SETUPMAPPING and REMOVEMAPPING.

wire! {
    /// Argument of SETUPMAPPING.
    pub struct SetupmappingIn {
        /// File handle.
        pub fh: u64,
        /// Offset in the file, bytes.
        pub foffset: u64,
        /// Length in bytes.
        pub len: u64,
        /// [`crate::SetupmappingFlags`].
        pub flags: u64,
        /// Offset in the window, bytes.
        pub moffset: u64,
    }

    /// Head of REMOVEMAPPING; `count` [`RemovemappingOne`] follow.
    pub struct RemovemappingIn {
        /// Number of items.
        pub count: u32,
    }

    /// One item of REMOVEMAPPING.
    pub struct RemovemappingOne {
        /// Offset in the window, bytes.
        pub moffset: u64,
        /// Length in bytes.
        pub len: u64,
    }
}
