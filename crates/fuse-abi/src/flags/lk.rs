use bitflags::bitflags;

bitflags! {
    /// Flags of [`crate::LkIn`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct LkFlags: u32 {
        /// A BSD lock (`flock`), not a POSIX one.
        const FLOCK = 1 << 0;
    }
}
