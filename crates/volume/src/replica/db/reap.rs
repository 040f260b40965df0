//! Deferred removal of backing files: what is known of an object when its file's turn comes.

/// The state of an object whose backing file is scheduled for removal.
pub(crate) enum ReapState {
    /// Deleted: its number is never used again.
    Unknown,
    /// Known, and not cached.
    Absent,
    /// Cached again.
    Cached,
    /// Not cached, but open, so that its backing file is about to be filled.
    Open,
}
