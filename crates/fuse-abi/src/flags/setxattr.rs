use bitflags::bitflags;

bitflags! {
    /// Flags in `setxattr_flags` of [`crate::SetxattrIn`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct SetxattrFlags: u32 {
        /// Clear setgid when this access ACL is set.
        const ACL_KILL_SGID = 1 << 0;
    }
}
