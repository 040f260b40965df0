//! Deferred removal of backing files: what is known of an object when its file's turn comes.

/// What is known of an object whose backing file was doomed.
pub(crate) enum ReapState {
    /// Nothing: its number is never used again.
    Unknown,
    /// It is known, and nothing of it is here.
    Absent,
    /// It came back.
    Cached,
    /// Nothing of it is here, and somebody has its file open to have it come.
    Open,
}
