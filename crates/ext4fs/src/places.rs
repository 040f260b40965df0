//! Where in a file there is data, and where on the device that lies.

use shunt_ext4::{Error, Inode, Kind, Mapping};
use shunt_fuse::{Capabilities, Errno, NodeId, Request, Whence};

use crate::Ext4;
use crate::elsewhere::Elsewhere;

impl Ext4 {
    /// Has the kernel write out what is dirty from `offset` on: the engine knows neither of data that waits in the page cache
    /// nor of a size that it gave the file, and the kernel asks where data is without writing it first.
    ///
    /// An invalidation writes dirty pages and drops all. It needs no lock that the kernel holds while it waits for LSEEK.
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
            Elsewhere::wait_for(settled).await;
        }
        Ok(())
    }

    /// `SEEK_DATA`, `SEEK_HOLE`.
    pub(crate) fn seek(&self, inode: &Inode, offset: u64, whence: Whence) -> Result<u64, Errno> {
        let writing = self.writing.as_ref();
        if let Some(found) = writing.and_then(|writing| writing.seek(inode.number, offset, whence)) {
            return found;
        }
        let found = match whence {
            Whence::Data => self.told(self.filesystem.next_data(inode, offset))?,
            Whence::Hole => self.told(self.filesystem.next_hole(inode, offset))?,
        };
        found.ok_or(Errno::NXIO)
    }

    /// `FIBMAP`: the block of the device, 0 for a hole. Boot loaders ask for it, and only on block devices does the kernel
    /// pass it on. What was preallocated has its block but no data yet, and counts as a hole.
    ///
    /// # Errors
    /// EINVAL where blocks of the size that is asked for are none of the file system's own, nor several in one piece.
    pub(crate) fn block_of(&self, inode: &Inode, block: u64, size: u32) -> Result<u64, Errno> {
        let own = self.filesystem.geometry().block_size;
        if inode.kind != Kind::Regular || size == 0 || !own.max(size).is_multiple_of(own.min(size)) {
            return Err(Errno::INVAL);
        }
        let bytes = block.checked_mul(size.into()).ok_or(Errno::FBIG)?;
        let Ok(logical) = u32::try_from(bytes / u64::from(own)) else { return Ok(0) };
        let wanted = (size / own).max(1);
        let run = match self.filesystem.map(inode, logical, wanted) {
            // It lies in the inode.
            Err(Error::Invalid) => Err(Errno::OPNOTSUPP),
            run => self.told(run),
        }?;
        let Mapping::Written(at) = run.place else { return Ok(0) };
        let at = at * u64::from(own) + bytes % u64::from(own);
        if run.length < wanted || !at.is_multiple_of(size.into()) {
            Err(Errno::INVAL)
        } else {
            Ok(at / u64::from(size))
        }
    }
}
