use bitflags::bitflags;

bitflags! {
    /// The valid fields of [`crate::SetattrIn`] (`FATTR_...`).
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct SetattrValid: u32 {
        /// `mode`.
        const MODE = 1 << 0;
        /// `uid`.
        const UID = 1 << 1;
        /// `gid`.
        const GID = 1 << 2;
        /// `size`: a truncation or extension.
        const SIZE = 1 << 3;
        /// `atime`.
        const ATIME = 1 << 4;
        /// `mtime`.
        const MTIME = 1 << 5;
        /// `fh`: the change is made through an open file.
        const FH = 1 << 6;
        /// Set the access time to now; sent together with `ATIME`.
        const ATIME_NOW = 1 << 7;
        /// Set the modification time to now; sent together with `MTIME`.
        const MTIME_NOW = 1 << 8;
        /// `lock_owner`.
        const LOCKOWNER = 1 << 9;
        /// `ctime`; sent only with the write-back cache.
        const CTIME = 1 << 10;
        /// Clear setuid, and setgid if group-executable, on truncation (7.33).
        const KILL_SUIDGID = 1 << 11;
    }
}
