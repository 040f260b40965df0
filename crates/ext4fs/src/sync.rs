//! What lasts from when on.

use shunt_fuse::{Errno, NodeId};

use crate::Ext4;

impl Ext4 {
    /// `fsync(2)` of a file or a directory, on whatever descriptor: one commit has all that was changed before.
    pub(crate) fn sync_one(&self, node: NodeId) -> Result<(), Errno> {
        let number = self.number(node)?;
        self.settle_read(number)?;
        if let Some(writing) = &self.writing {
            self.told(writing.settle(number))?;
        }
        self.commit()
    }

    /// `syncfs(2)`, where the kernel passes it on: of a block device.
    pub(crate) fn sync_all(&self) -> Result<(), Errno> {
        self.settle_reads()?;
        if let Some(writing) = &self.writing {
            self.told(writing.settle_all())?;
        }
        self.commit()
    }

    /// Everything that was answered lasts from here on.
    fn commit(&self) -> Result<(), Errno> {
        if self.is_writable() { self.told(self.filesystem.sync()) } else { Ok(()) }
    }
}
