use bitflags::bitflags;

bitflags! {
    /// Flags of [`crate::FsyncIn`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct FsyncFlags: u32 {
        /// Sync the data only; attributes need not be durable.
        const FDATASYNC = 1 << 0;
    }
}
