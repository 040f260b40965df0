use bitflags::bitflags;

bitflags! {
    /// Flags in `setxattr_flags` of [`crate::SetxattrIn`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct SetxattrFlags: u32 {
        /// Clear setgid with the access ACL that is being set.
        const ACL_KILL_SGID = 1 << 0;
    }
}
