//! Reports changes that were acknowledged and then rolled back, once for each open, like the kernel's `errseq_t`. The replica
//! counts rollbacks; each open file and directory remembers the count that it has reported.

use std::sync::atomic::{AtomicU64, Ordering};

use shunt_fuse::Errno;
use shunt_volume::replica::Replica;

/// Number of rollbacks at the open or at the last report.
pub(crate) struct ErrSeq(AtomicU64);

impl ErrSeq {
    pub(crate) fn new(replica: &Replica) -> Self {
        Self(AtomicU64::new(replica.rollbacks()))
    }

    /// Returns EIO if a rollback happened since the last check: once for each open, as for a disk error.
    pub(crate) fn check(&self, replica: &Replica) -> Result<(), Errno> {
        let now = replica.rollbacks();
        if self.0.swap(now, Ordering::Relaxed) == now { Ok(()) } else { Err(Errno::IO) }
    }
}
