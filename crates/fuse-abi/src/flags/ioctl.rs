use bitflags::bitflags;

bitflags! {
    /// Flags of [`crate::IoctlIn`] and [`crate::IoctlOut`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct IoctlFlags: u32 {
        /// A 32-bit caller on a 64-bit kernel.
        const COMPAT = 1 << 0;
        /// Any memory of the caller may be asked for.
        const UNRESTRICTED = 1 << 1;
        /// In the reply: try again with these pieces of memory.
        const RETRY = 1 << 2;
        /// A 32-bit caller.
        const IS_32BIT = 1 << 3;
        /// On a directory (7.18).
        const DIR = 1 << 4;
        /// An x32 caller, whose times have 64 bits (7.30).
        const COMPAT_X32 = 1 << 5;
    }
}
