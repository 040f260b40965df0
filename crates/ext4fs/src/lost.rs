//! Failed write-back: the next `write(2)` of each writer is refused.
//!
//! With the write-back cache the kernel accepts a write before the file system has a block for it, and reports the failure
//! of a WRITE only at fsync and close: who does neither writes for ever. Here a failed WRITE is kept as an error sequence,
//! like `errseq_t`: each handle that was open at that time is told once.
//!
//! The way to tell is a GETATTR. Before a write the kernel refreshes a file's size and mode where they were invalidated, by
//! a GETATTR that carries the file's handle, and passes its error on to the writer. Other uses of a handle (reads,
//! `SEEK_END`) need the size alone, which a write-back cache owns, and `stat(2)` carries no handle. So the attributes of
//! a file are invalidated when a WRITE fails, and again as long as writes may have to be refused.

use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{Inode, ReservedAccess};
use shunt_fuse::{Errno, Expiry, FileHandle, NodeId, Request};

use crate::Ext4;
use crate::low_space::LowSpace;
use crate::opens::{appends, number_of, only_writes, rights_of};

/// Free bytes that may be of no use to a file: its extents need blocks as well, and others have blocks reserved.
const TO_SPARE: u64 = 1 << 20;

/// The last failed WRITE of an inode.
#[derive(Debug)]
struct Failure {
    errno: Errno,
    /// Bytes of that WRITE: where so many fit by now, and [`TO_SPARE`] more, there is nothing to refuse.
    length: u64,
    /// Handles with a smaller number were open.
    at: u64,
    /// Those of them that know.
    told: HashSet<u64>,
}

/// Failed WRITEs of the inodes that the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// Opens and failures so far, in one order.
    clock: AtomicU64,
    failures: Mutex<HashMap<u32, Failure>>,
}

impl Lost {
    /// The number of another open file.
    pub(crate) fn opened(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed) & u64::MAX >> 8
    }

    fn fail(&self, inode: u32, errno: Errno, length: u64) {
        let mut failures = self.failures.lock();
        let at = self.opened();
        failures.insert(inode, Failure { errno, length, at, told: HashSet::new() });
    }

    /// The failure of which a handle does not know yet. `has_room` tells whether so many bytes fit by now.
    fn tell(&self, inode: u32, handle: u64, has_room: impl FnOnce(u64) -> bool) -> Option<Errno> {
        let (errno, length) = {
            let failures = self.failures.lock();
            let failure = failures.get(&inode)?;
            if handle > failure.at || failure.told.contains(&handle) {
                return None;
            }
            (failure.errno, failure.length)
        };
        self.knows(inode, handle);
        (errno != Errno::NOSPC || !has_room(length)).then_some(errno)
    }

    /// A handle was told otherwise, by fsync.
    pub(crate) fn knows(&self, inode: u32, handle: u64) {
        if let Some(failure) = self.failures.lock().get_mut(&inode)
            && handle < failure.at
        {
            failure.told.insert(handle);
        }
    }

    pub(crate) fn closed(&self, inode: u32, handle: u64) {
        if let Some(failure) = self.failures.lock().get_mut(&inode) {
            failure.told.remove(&handle);
        }
    }

    pub(crate) fn forget(&self, inode: u32) {
        self.failures.lock().remove(&inode);
    }
}

impl Ext4 {
    /// The kernel wrote back, which failed.
    pub(crate) fn write_back_failed(&self, request: &Request<'_>, inode: u32, errno: Errno, length: usize) {
        self.lost.fail(inode, errno, length as u64);
        request.session().caches().invalidate_node(crate::reply::node(inode), None);
    }

    /// Whether a file may be written through a handle, as far as that can be known before the kernel says where.
    ///
    /// # Errors
    /// EPERM where the file became immutable, ENOSPC where no block is left and each write needs one, and the error of a
    /// write-back that failed.
    pub(crate) fn may_write(&self, handle: FileHandle, inode: &Inode) -> Result<(), Errno> {
        if inode.flags.contains(InodeFlags::IMMUTABLE) {
            return Err(Errno::PERM);
        }
        let lost = self.lost.tell(inode.number, number_of(handle), |length| {
            self.has_room(length + TO_SPARE, rights_of(handle))
        });
        if let Some(errno) = lost {
            return Err(errno);
        }
        // Through other handles a file is read as well, and then its size may be asked for.
        let refused = only_writes(handle) && self.needs_blocks(inode, handle);
        if refused && !self.has_room(1, rights_of(handle)) { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// How long the kernel may keep attributes: not at all where a file is open for writing and space is low, so that the
    /// next write asks.
    pub(crate) fn expiry(&self, inode: &Inode) -> Expiry {
        match self.is_low() && self.writers.any(inode.number) {
            true => Expiry::NEVER_CACHED,
            false => Expiry::FOREVER,
        }
    }

    /// The kernel is about to write, or wants the attributes for something else. Returns how long it may keep them.
    ///
    /// Attributes that are not cached are asked for by reads and seeks as well, which are not to be refused. So where a handle
    /// may read, they are cached, and invalidated after the answer: only a write asks for them then.
    pub(crate) async fn before_write(&self, request: &Request<'_>, node: NodeId) -> Result<Expiry, Errno> {
        let number = self.number(node)?;
        if !self.is_low() || !self.writers.any(number) {
            return Ok(Expiry::FOREVER);
        }
        if self.low_space.as_ref().is_some_and(LowSpace::is_near_end) {
            self.write_out(request, node, 0).await?;
        }
        if self.writers.all_write_only(number) {
            return Ok(Expiry::NEVER_CACHED);
        }
        request.session().caches().invalidate_node(node, None);
        Ok(Expiry::FOREVER)
    }

    /// Whether writes have to ask first.
    pub(crate) fn is_low(&self) -> bool {
        self.low_space.as_ref().is_some_and(LowSpace::is_low)
    }

    /// Waits for what is about to be freed before it says no.
    fn has_room(&self, bytes: u64, rights: ReservedAccess) -> bool {
        let has_room = || self.filesystem.room(rights) >= bytes;
        has_room()
            || self.reaper.as_ref().is_some_and(|reaper| {
                reaper.catch_up();
                has_room()
            })
    }

    /// Whether a file has no block into which it could be written through this handle.
    fn needs_blocks(&self, inode: &Inode, handle: FileHandle) -> bool {
        let block_size = u64::from(self.filesystem.geometry().block_size);
        let none_behind = inode.size.is_multiple_of(block_size) && inode.blocks * 512 <= inode.size;
        inode.blocks == 0 || appends(handle) && none_behind
    }
}
