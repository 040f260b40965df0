//! Small files that are read again and again: headers of a build, scripts, configuration.
//!
//! A read that is passed through makes the kernel doubt the access time it knows, so the next `fstat` of the file asks
//! the daemon, and each open registers the lower file. A small file that is opened for reading a second time is
//! therefore served from the mount's own page cache: once its pages are there, an open and its release are all that
//! comes. The price is that its pages are held twice, so large files stay passed through.

use std::sync::atomic::{AtomicU64, Ordering};

use shunt_fuse::NodeId;

/// Bytes up to which a file is small: what one read-ahead of the kernel fetches.
pub(crate) const SMALL: u64 = 128 << 10;

/// Opens remembered. A build's working set; more only forget each other.
const PLACES: usize = 1 << 15;

/// The inodes opened for reading lately, in 256 KiB whatever comes. It may forget, never invent.
#[derive(Debug)]
pub(crate) struct Rereads(Box<[AtomicU64]>);

impl Default for Rereads {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Rereads {
    /// Takes note of an open for reading; tells whether there was one before.
    pub(crate) fn note(&self, node: NodeId) -> bool {
        // Fibonacci hashing: ids come in runs.
        let place = node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACES.ilog2());
        self.0[place as usize].swap(node.0, Ordering::Relaxed) == node.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_open_is_known_as_such() {
        let rereads = Rereads::default();
        assert!(!rereads.note(NodeId(5)));
        assert!(rereads.note(NodeId(5)));
        assert!(!rereads.note(NodeId(6)));
    }

    #[test]
    fn neighbours_do_not_push_each_other_out() {
        let rereads = Rereads::default();
        (2..10_000).for_each(|node| assert!(!rereads.note(NodeId(node))));
        let kept = (2..10_000).filter(|&node| rereads.note(NodeId(node))).count();
        assert!(kept > 8_000, "{kept}");
    }
}
