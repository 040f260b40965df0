use bitflags::bitflags;

bitflags! {
    /// Flags of [`crate::ReleaseIn`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct ReleaseFlags: u32 {
        /// Flush as well.
        const FLUSH = 1 << 0;
        /// Release the BSD lock of `lock_owner`.
        const FLOCK_UNLOCK = 1 << 1;
    }
}
