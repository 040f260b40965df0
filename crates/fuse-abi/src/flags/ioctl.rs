use bitflags::bitflags;

bitflags! {
    /// Flags of [`crate::IoctlIn`] and [`crate::IoctlOut`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct IoctlFlags: u32 {
        /// The caller is a 32-bit process on a 64-bit kernel.
        const COMPAT = 1 << 0;
        /// The server may access any memory of the caller.
        const UNRESTRICTED = 1 << 1;
        /// In the reply: retry with these ranges of memory.
        const RETRY = 1 << 2;
        /// The caller is a 32-bit process.
        const IS_32BIT = 1 << 3;
        /// The ioctl is on a directory (7.18).
        const DIR = 1 << 4;
        /// The caller is an x32 process, whose times have 64 bits (7.30).
        const COMPAT_X32 = 1 << 5;
    }
}
