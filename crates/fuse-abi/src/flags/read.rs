use bitflags::bitflags;

bitflags! {
    /// Flags of [`crate::ReadIn`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct ReadFlags: u32 {
        /// `lock_owner` is valid.
        const LOCKOWNER = 1 << 1;
    }
}
