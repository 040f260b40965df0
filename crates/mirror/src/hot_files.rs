//! Detection of small files that are read repeatedly: headers of a build, scripts, configuration.
//!
//! A passthrough read makes the kernel invalidate the access time it cached, so the next `fstat` of the file becomes a
//! GETATTR, and each open registers the lower file. A small file that is opened for reading a second time is therefore
//! served from the mount's own page cache: once its pages are cached, an open costs only OPEN and RELEASE. The price is
//! that its pages are cached twice, so large files stay on passthrough.

use std::sync::atomic::{AtomicU64, Ordering};

use shunt_fuse::NodeId;

/// Size limit of a small file in bytes: one kernel read-ahead.
pub(crate) const MAX_HOT_FILE_BYTES: u64 = 128 << 10;

/// Slots for remembered opens, enough for the working set of a build. Collisions overwrite.
const SLOTS: usize = 1 << 15;

/// A lossy hash table of the inodes recently opened for reading, 256 KiB in total. It may forget an inode, but never
/// reports one that was not opened.
#[derive(Debug)]
pub(crate) struct RecentOpens(Box<[AtomicU64]>);

impl Default for RecentOpens {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl RecentOpens {
    /// Records an open for reading; returns whether the inode was already recorded.
    pub(crate) fn note(&self, node: NodeId) -> bool {
        // Fibonacci hashing, because ids are often consecutive.
        let slot = node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOTS.ilog2());
        self.0[slot as usize].swap(node.0, Ordering::Relaxed) == node.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_reports_the_second_open() {
        let recent_opens = RecentOpens::default();
        assert!(!recent_opens.note(NodeId(5)));
        assert!(recent_opens.note(NodeId(5)));
        assert!(!recent_opens.note(NodeId(6)));
    }

    #[test]
    fn consecutive_ids_rarely_collide() {
        let recent_opens = RecentOpens::default();
        (2..10_000).for_each(|node| assert!(!recent_opens.note(NodeId(node))));
        let recorded = (2..10_000).filter(|&node| recent_opens.note(NodeId(node))).count();
        assert!(recorded > 8_000, "{recorded}");
    }
}
