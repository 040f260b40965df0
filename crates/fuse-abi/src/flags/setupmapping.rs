use bitflags::bitflags;

bitflags! {
    /// Flags of [`crate::SetupmappingIn`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct SetupmappingFlags: u64 {
        /// Map for writing.
        const WRITE = 1 << 0;
        /// Map for reading.
        const READ = 1 << 1;
    }
}
