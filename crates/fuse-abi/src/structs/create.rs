//! Operations on names: MKNOD, MKDIR, CREATE, TMPFILE, RENAME, LINK.

wire! {
    /// Argument of MKNOD; the name follows.
    pub struct MknodIn {
        /// Type and permissions.
        pub mode: u32,
        /// Device number of a device node, in the kernel's 32-bit encoding.
        pub rdev: u32,
        /// The caller's umask; the server applies it only with [`crate::InitFlags::DONT_MASK`].
        pub umask: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Argument of MKDIR; the name follows.
    pub struct MkdirIn {
        /// Permissions.
        pub mode: u32,
        /// The caller's umask; see [`MknodIn::umask`].
        pub umask: u32,
    }

    /// Argument of CREATE and TMPFILE; the name follows.
    pub struct CreateIn {
        /// `O_...` flags of the open.
        pub flags: u32,
        /// Type and permissions.
        pub mode: u32,
        /// The caller's umask; see [`MknodIn::umask`].
        pub umask: u32,
        /// [`crate::OpenFlags`].
        pub open_flags: u32,
    }

    /// Argument of RENAME; the old and the new name follow.
    pub struct RenameIn {
        /// Node of the new parent directory.
        pub newdir: u64,
    }

    /// Argument of RENAME2; the old and the new name follow.
    pub struct Rename2In {
        /// Node of the new parent directory.
        pub newdir: u64,
        /// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`.
        pub flags: u32,
        /// Zero.
        pub padding: u32,
    }

    /// Argument of LINK; the new name follows. The header's node is the directory of the new name.
    pub struct LinkIn {
        /// The node that gets another name.
        pub oldnodeid: u64,
    }
}
