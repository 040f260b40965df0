use bitflags::bitflags;

bitflags! {
    /// Flags of [`crate::PollIn`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct PollFlags: u32 {
        /// Send a poll notification when the file becomes ready.
        const SCHEDULE_NOTIFY = 1 << 0;
    }
}
