use bitflags::bitflags;

bitflags! {
    /// Flags of [`crate::GetattrIn`] and [`crate::StatxIn`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct GetattrFlags: u32 {
        /// `fh` is valid.
        const FH = 1 << 0;
    }
}
