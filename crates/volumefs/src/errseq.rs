//! What `fsync(2)` has to tell of what was answered, and could not be kept.

use std::sync::atomic::{AtomicU64, Ordering};

use shunt_fuse::Errno;
use shunt_volume::replica::Replica;

/// How often that had happened when somebody was told last, or began.
pub(crate) struct ErrSeq(AtomicU64);

impl ErrSeq {
    pub(crate) fn new(replica: &Replica) -> Self {
        Self(AtomicU64::new(replica.rollbacks()))
    }

    /// EIO where it happened since: once for each open, as with an error of a disk.
    pub(crate) fn check(&self, replica: &Replica) -> Result<(), Errno> {
        let now = replica.rollbacks();
        if self.0.swap(now, Ordering::Relaxed) == now { Ok(()) } else { Err(Errno::IO) }
    }
}
