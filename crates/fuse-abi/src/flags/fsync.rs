use bitflags::bitflags;

bitflags! {
    /// Flags of [`crate::FsyncIn`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct FsyncFlags: u32 {
        /// The data suffices; attributes need not be stable.
        const FDATASYNC = 1 << 0;
    }
}
