use bitflags::bitflags;

bitflags! {
    /// Flags in `open_flags` of [`crate::OpenIn`] and [`crate::CreateIn`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct OpenFlags: u32 {
        /// Clear setuid, and setgid if group-executable, with `O_TRUNC` (7.33).
        const KILL_SUIDGID = 1 << 0;
    }
}
