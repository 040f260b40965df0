//! Failed write-back: the next `write(2)` of each writer returns the error.
//!
//! With the write-back cache the kernel accepts a write before the file system has a block for it, and reports the failure of a
//! WRITE only at fsync and close; a program that calls neither would never notice. This module records a failed WRITE like an
//! `errseq_t`: each handle that was open at that time gets the error once.
//!
//! The error reaches the writer through GETATTR. Before a write the kernel refreshes a file's size and mode where they were
//! invalidated, by a GETATTR that carries the file's handle, and passes its error on to the writer. Other uses of a handle
//! (reads, `SEEK_END`) need only the size, which a write-back cache owns, and `stat(2)` carries no handle. So the attributes of
//! a file are invalidated when a WRITE fails, and again for as long as writes may have to be refused.

use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{Inode, ReservedAccess};
use shunt_fuse::{Errno, Expiry, FileHandle, NodeId, Request};

use crate::Ext4;
use crate::low_space::LowSpace;
use crate::opens::{appends, only_writes, rights_of, sequence_of};
use crate::sequence::Sequence;

/// Free bytes that may be unusable for a file: its extent tree needs blocks too, and other files have blocks reserved.
const UNUSABLE_SPACE_BYTES: u64 = 1 << 20;

/// The last failed WRITE of an inode.
#[derive(Debug)]
struct Failure {
    errno: Errno,
    /// Length of that WRITE in bytes. ENOSPC is no longer reported once this much and [`UNUSABLE_SPACE_BYTES`] are free.
    length: u64,
    /// Handles that were opened before were open when the WRITE failed.
    at: Sequence,
    /// Handles that have already received the error.
    reported_to: HashSet<Sequence>,
}

/// Failed WRITEs by inode, until the kernel forgets the inode.
#[derive(Debug, Default)]
pub(crate) struct WriteErrors {
    /// Number of opens and failures, in one sequence.
    clock: AtomicU64,
    failures: Mutex<HashMap<u32, Failure>>,
}

impl WriteErrors {
    /// Returns the position of a newly opened handle.
    pub(crate) fn opened(&self) -> Sequence {
        Sequence::new(self.clock.fetch_add(1, Ordering::Relaxed))
    }

    /// Continues the sequence after the handles of an earlier daemon.
    pub(crate) fn continue_after(&self, handles: impl Iterator<Item = FileHandle>) {
        let last =
            handles.map(sequence_of).reduce(|last, next| if last.precedes(next) { next } else { last });
        if let Some(last) = last {
            self.clock.store(last.number() + 1, Ordering::Relaxed);
        }
    }

    fn fail(&self, inode: u32, errno: Errno, length: u64) {
        let mut failures = self.failures.lock();
        let at = self.opened();
        failures.insert(inode, Failure { errno, length, at, reported_to: HashSet::new() });
    }

    /// Returns the failure that was not yet reported to a handle. `has_room` reports whether that many bytes are free now.
    fn unreported(&self, inode: u32, handle: Sequence, has_room: impl FnOnce(u64) -> bool) -> Option<Errno> {
        let (errno, length) = {
            let failures = self.failures.lock();
            let failure = failures.get(&inode)?;
            if !handle.precedes(failure.at) || failure.reported_to.contains(&handle) {
                return None;
            }
            (failure.errno, failure.length)
        };
        self.mark_reported(inode, handle);
        (errno != Errno::NOSPC || !has_room(length)).then_some(errno)
    }

    /// Marks the failure as reported to a handle, by GETATTR or fsync.
    pub(crate) fn mark_reported(&self, inode: u32, handle: Sequence) {
        if let Some(failure) = self.failures.lock().get_mut(&inode)
            && handle.precedes(failure.at)
        {
            failure.reported_to.insert(handle);
        }
    }

    pub(crate) fn closed(&self, inode: u32, handle: Sequence) {
        if let Some(failure) = self.failures.lock().get_mut(&inode) {
            failure.reported_to.remove(&handle);
        }
    }

    pub(crate) fn forget(&self, inode: u32) {
        self.failures.lock().remove(&inode);
    }
}

impl Ext4 {
    /// Records that a WRITE of the write-back cache failed.
    pub(crate) fn write_back_failed(&self, request: &Request<'_>, inode: u32, errno: Errno, length: usize) {
        self.write_errors.fail(inode, errno, length as u64);
        request.session().caches().invalidate_node(crate::reply::node(inode), None);
    }

    /// Checks whether a file may be written through a handle, as far as that can be decided before the offset is known.
    ///
    /// # Errors
    /// EPERM where the file became immutable, ENOSPC where no block is free and each write needs one, and the error of a failed
    /// write-back.
    pub(crate) fn may_write(&self, handle: FileHandle, inode: &Inode) -> Result<(), Errno> {
        if inode.flags.contains(InodeFlags::IMMUTABLE) {
            return Err(Errno::PERM);
        }
        let error = self.write_errors.unreported(inode.number, sequence_of(handle), |length| {
            self.has_room(length + UNUSABLE_SPACE_BYTES, rights_of(handle))
        });
        if let Some(errno) = error {
            return Err(errno);
        }
        // Handles that also read may request the size only, and must not fail then.
        let refused = only_writes(handle) && self.needs_blocks(inode, handle);
        if refused && !self.has_room(1, rights_of(handle)) { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// Returns how long the kernel may cache attributes: not at all for a file with writers when space is low, so that the next
    /// write sends a GETATTR. Where a writer also reads, its reads would send one too, so the attributes are cached, and
    /// invalidated by the low-space thread.
    pub(crate) fn expiry(&self, inode: &Inode) -> Expiry {
        match self.is_low() && self.writers.all_write_only(inode.number) {
            true => Expiry::NEVER_CACHED,
            false => Expiry::FOREVER,
        }
    }

    /// Returns how long the kernel may cache the attributes of a GETATTR that may precede a write, and writes out dirty data
    /// near the end of space.
    ///
    /// Reads and seeks also request attributes that are not cached, and must not fail. So where a handle may read, the
    /// attributes are cached and invalidated after the reply: then only a write sends a GETATTR.
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

    /// Reports whether each write has to be preceded by a GETATTR.
    pub(crate) fn is_low(&self) -> bool {
        self.low_space.as_ref().is_some_and(LowSpace::is_low)
    }

    /// Reports whether `bytes` are free. Waits for the reaper before it returns false.
    fn has_room(&self, bytes: u64, rights: ReservedAccess) -> bool {
        let has_room = || self.filesystem.room(rights) >= bytes;
        has_room()
            || self.reaper.as_ref().is_some_and(|reaper| {
                reaper.catch_up();
                has_room()
            })
    }

    /// Reports whether any write through this handle needs a new block.
    fn needs_blocks(&self, inode: &Inode, handle: FileHandle) -> bool {
        let block_size = u64::from(self.filesystem.geometry().block_size);
        let none_behind = inode.size.is_multiple_of(block_size) && inode.blocks * 512 <= inode.size;
        inode.blocks == 0 || appends(handle) && none_behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_continues_after_an_earlier_daemon() {
        let errors = WriteErrors::default();
        errors.continue_after([5, 3].map(|number| FileHandle(number << 35 | 7)).into_iter());
        assert_eq!(errors.opened(), Sequence::new(6));
    }
}
