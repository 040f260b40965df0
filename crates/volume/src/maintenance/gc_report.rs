//! The result of [`collect`](super::collect()): how much was freed, and how much will be.

use std::time::Duration;

use crate::id::Seq;

/// The result of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Number of past versions and names deleted.
    pub versions_deleted: u64,
    /// Number of chunks that are referenced.
    pub live: u64,
    /// Number of unreferenced chunks that were marked by this collection.
    pub marked: u64,
    /// Number of chunks deleted: unreferenced for longer than the grace period.
    pub dropped: u64,
    /// Number of packs deleted.
    pub packs: u64,
    /// Bytes in these packs.
    pub bytes: u64,
    /// Number of sparse packs that were compacted.
    pub rewritten: u64,
    /// Net number of bytes that their later deletion frees.
    pub bytes_to_free: u64,
    /// Time until that deletion.
    pub saved_after: Duration,
    /// Unused bytes in packs that stay because of other chunks in them.
    pub unused_bytes: u64,
    /// The last entry truncated from the log.
    pub log_truncated_to: Seq,
}
