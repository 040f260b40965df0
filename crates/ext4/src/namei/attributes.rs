//! The attributes that a caller gives to a new inode.

/// Ownership and permissions of a new inode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewInode {
    /// Permission bits, setuid, setgid and sticky.
    pub permissions: u16,
    /// Permission bits to clear, unless the directory has a default ACL.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Group; overridden by that of a set-group-ID directory.
    pub gid: u32,
}
