//! Positions of data: `SEEK_DATA` and `SEEK_HOLE` in a file, and `FIBMAP` on the device.

use shunt_ext4::{Error, Inode, Kind, Mapping};
use shunt_fuse::{Capabilities, Errno, NodeId, Request, Whence};

use crate::Ext4;
use crate::notification_sent::NotificationSent;

impl Ext4 {
    /// Makes the kernel write out dirty data from `offset` on. The engine knows neither the data in the page cache nor a size
    /// that the kernel changed, and the kernel sends LSEEK without writing back first.
    ///
    /// An invalidation writes dirty pages and drops all. It takes no lock that the kernel holds while it waits for LSEEK.
    pub(crate) async fn write_out(
        &self,
        request: &Request<'_>,
        node: NodeId,
        offset: u64,
    ) -> Result<(), Errno> {
        let has_cache = request.session().negotiated().has(Capabilities::WRITEBACK_CACHE);
        if !has_cache || !self.writers.any(self.number(node)?) {
            return Ok(());
        }
        let caches = request.session().caches();
        caches.invalidate_node(node, Some(offset..offset));
        if let Some(settled) = caches.settled(node) {
            NotificationSent::wait_for(settled).await;
        }
        Ok(())
    }

    /// Implements `SEEK_DATA` and `SEEK_HOLE`.
    pub(crate) fn seek(&self, inode: &Inode, offset: u64, whence: Whence) -> Result<u64, Errno> {
        let writing = self.writing.as_ref();
        if let Some(found) = writing.and_then(|writing| writing.seek(inode.number, offset, whence)) {
            return found;
        }
        let found = match whence {
            Whence::Data => self.to_errno(self.filesystem.next_data(inode, offset))?,
            Whence::Hole => self.to_errno(self.filesystem.next_hole(inode, offset))?,
        };
        found.ok_or(Errno::NXIO)
    }

    /// Implements `FIBMAP`: the block of the device, 0 for a hole. Boot loaders use it, and the kernel passes it on only for
    /// block devices. A preallocated block holds no data yet and counts as a hole.
    ///
    /// # Errors
    /// EINVAL where the inode is not a regular file, where the requested block size neither divides nor is a multiple of that
    /// of the file system, or where the block is not contiguous and aligned on the device.
    pub(crate) fn block_of(&self, inode: &Inode, block: u64, size: u32) -> Result<u64, Errno> {
        let own = self.filesystem.geometry().block_size;
        if inode.kind != Kind::Regular || size == 0 || !own.max(size).is_multiple_of(own.min(size)) {
            return Err(Errno::INVAL);
        }
        let bytes = block.checked_mul(size.into()).ok_or(Errno::FBIG)?;
        let Ok(logical) = u32::try_from(bytes / u64::from(own)) else { return Ok(0) };
        let needed = (size / own).max(1);
        let run = match self.filesystem.map(inode, logical, needed) {
            // Inline data lies in the inode.
            Err(Error::Invalid) => Err(Errno::OPNOTSUPP),
            run => self.to_errno(run),
        }?;
        let Mapping::Written(at) = run.mapping else { return Ok(0) };
        let at = at * u64::from(own) + bytes % u64::from(own);
        if run.length < needed || !at.is_multiple_of(size.into()) {
            Err(Errno::INVAL)
        } else {
            Ok(at / u64::from(size))
        }
    }
}
