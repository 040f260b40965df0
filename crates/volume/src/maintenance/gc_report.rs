//! The result of [`collect`](super::collect()): how much was freed, and how much will be.

use std::time::Duration;

use crate::id::Seq;

/// What was freed, and what will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Versions and names of the past that were forgotten.
    pub trimmed: u64,
    /// Chunks that the volume knows and speaks of.
    pub live: u64,
    /// Chunks that nothing speaks of, and that were found to be so just now.
    pub marked: u64,
    /// Chunks that were dropped: nothing spoke of them for longer than the grace.
    pub dropped: u64,
    /// Packs that were removed.
    pub packs: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Packs of which little was in use: that is in others now.
    pub rewritten: u64,
    /// Bytes that this will free.
    pub saved: u64,
    /// When: so long they stay.
    pub saved_after: Duration,
    /// Bytes of packs that stay, and of which nothing is in use, for others in them.
    pub stuck: u64,
    /// Up to where the log is not there any more.
    pub forgotten: Seq,
}
