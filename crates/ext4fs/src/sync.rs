//! Durability: fsync and syncfs. Pending access times and the kernel's direct writes are recorded first; then one commit makes
//! all earlier changes durable.

use shunt_fuse::{Errno, NodeId};

use crate::Ext4;

impl Ext4 {
    /// Implements `fsync(2)` of a file or directory on any descriptor: one commit contains all earlier changes.
    pub(crate) fn sync_one(&self, node: NodeId) -> Result<(), Errno> {
        let number = self.number(node)?;
        self.flush_atime(number)?;
        if let Some(writing) = &self.writing {
            self.to_errno(writing.settle(number))?;
        }
        self.commit()
    }

    /// Implements `syncfs(2)`, which the kernel passes on only for block-device mounts.
    pub(crate) fn sync_all(&self) -> Result<(), Errno> {
        self.flush_atimes()?;
        if let Some(writing) = &self.writing {
            self.to_errno(writing.settle_all())?;
        }
        self.commit()
    }

    /// Makes every completed request durable.
    fn commit(&self) -> Result<(), Errno> {
        if self.is_writable() { self.to_errno(self.filesystem.sync()) } else { Ok(()) }
    }
}
