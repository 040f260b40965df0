//! Structures of the extensions at the end of a request (7.38).

wire! {
    /// Head of an extension. Types 0 to 31 are a [`SecctxHeader`], and the type is its number of contexts.
    pub struct ExtHeader {
        /// Length of the extension in bytes, this head and the padding included.
        pub size: u32,
        /// Type; see [`crate::consts::EXT_GROUPS`].
        pub r#type: u32,
    }

    /// Head of the security contexts of a creation.
    pub struct SecctxHeader {
        /// Length of all contexts in bytes, this head included.
        pub size: u32,
        /// Number of [`Secctx`] that follow, at most [`crate::consts::MAX_NR_SECCTX`].
        pub nr_secctx: u32,
    }

    /// Head of one security context; its name with a NUL and the value follow, padded to a multiple of 8 bytes.
    pub struct Secctx {
        /// Length of the value in bytes.
        pub size: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Head of the supplementary groups; `nr_groups` group ids of 4 bytes follow.
    pub struct SuppGroups {
        /// Number of group ids.
        pub nr_groups: u32,
    }
}
