//! The attributes that a caller gives to a new inode.

/// Whose it is, and who may do what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct New {
    /// Permission bits, setuid, setgid and sticky.
    pub permissions: u16,
    /// Bits that it does not get, unless the directory has a default ACL.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Group; that of the directory where that has the set-group bit.
    pub gid: u32,
}
