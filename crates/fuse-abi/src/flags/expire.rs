use bitflags::bitflags;

bitflags! {
    /// Flags of [`crate::NotifyInvalEntryOut`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct ExpireFlags: u32 {
        /// Expire the name, so that it is looked up again before its next use, but leave it (and mounts below) in place (7.38).
        const EXPIRE_ONLY = 1 << 0;
    }
}
