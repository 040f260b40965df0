use bitflags::bitflags;

bitflags! {
    /// Flags of [`crate::WriteIn`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct WriteFlags: u32 {
        /// Write-back from the page cache: the file handle is a guess and the caller is not the writer.
        const CACHE = 1 << 0;
        /// `lock_owner` is valid.
        const LOCKOWNER = 1 << 1;
        /// Clear setuid, setgid and file capabilities (7.31, this meaning since 7.33).
        const KILL_SUIDGID = 1 << 2;
    }
}
