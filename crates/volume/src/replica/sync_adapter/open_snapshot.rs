//! Consistent snapshots of files that are open for writing, for uploads.
//!
//! Databases, editors and logs keep files open for days. Data that such a program has fsynced is uploaded as of a moment
//! without writes: a file with the same change stamp before and after it was read had that content all the time. It stays a
//! local change until it is closed.

use std::collections::HashMap;
use std::fs::File;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use shunt_change_stamp::ChangeStamp;

use super::stable_reader::{is_quiet, settle_delay};
use super::tree_view::TreeView;
use super::{CachedContent, SyncAdapter};
use crate::merge::Ino;
use crate::object::{Content, Object, Time};
use crate::replica::CacheState;
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::Inode;
use crate::replica::error::{OpError, Result};

/// Minimum time without a write before a snapshot: timestamps of file systems are coarser than the intervals between writes.
const QUIESCENT_FOR: Duration = Duration::from_millis(100);

/// Minimum interval between reads of an open file, as a multiple of the duration of a read, and at least [`MIN_READ_INTERVAL`].
const READ_DUTY_DIVISOR: u32 = 10;
const MIN_READ_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum number of open files for which the time of the next read is remembered.
const MAX_REMEMBERED_READS: usize = 4096;

/// The times at which open files may be read again.
pub(super) type ReadAttempts = Mutex<HashMap<Ino, Instant>>;

impl CachedContent {
    /// Reports whether a file still has this content. `open`: its current change stamp, if it is open for writing.
    pub(super) fn is_valid_for(&self, inode: &Inode, open: Option<ChangeStamp>) -> bool {
        let same = match (self.open, open) {
            (before, Some(now)) => before == Some(now),
            (Some(before), None) => {
                (before.size(), Time(before.modified_nanos())) == (inode.size, inode.modified)
            }
            (None, None) => true,
        };
        same && self.generation == inode.generation
    }
}

/// A file that is being read for an upload.
pub(super) struct OpenSnapshot {
    num: Ino,
    pub(super) generation: u64,
    pub(super) previous: Content,
    pub(super) file: File,
    /// The change stamp at the start, if the file is open for writing.
    pub(super) open: Option<ChangeStamp>,
    /// The change stamp at the start.
    pub(super) at_start: ChangeStamp,
    begun: Instant,
}

impl SyncAdapter {
    /// Starts reading a file for an upload; `None` if it cannot be read now.
    pub(super) fn begin_reading(&self, num: Ino) -> Result<Option<OpenSnapshot>, Errno> {
        let begun = Instant::now();
        let found = self.replica.inner.read_in_background(|db| {
            let Some(inode) = db.find(num)?.filter(|inode| inode.state == CacheState::Complete) else {
                return Ok(None);
            };
            let mut stamp = None;
            let previous = db.content(num)?;
            if let Some(open) = db.opens.get_mut(&num).filter(|open| open.writers > 0) {
                let now = ChangeStamp::of(&open.file).map_err(OpError::from)?;
                let was_read = self
                    .content_cache
                    .lock()
                    .get(&num)
                    .is_some_and(|cached| cached.is_valid_for(&inode, Some(now)));
                let is_due = self.attempts.lock().get(&num).is_none_or(|due| *due <= begun);
                if !(open.synced || was_read) || !is_due || !is_quiet(&now, QUIESCENT_FOR) {
                    return Ok(None);
                }
                open.synced = false;
                stamp = Some(now);
            }
            Ok(Some((inode.generation, previous, stamp)))
        })?;
        let Some((generation, previous, open)) = found else { return Ok(None) };
        let Some(file) = self.replica.backing(num) else { return Ok(None) };
        if open.is_some() {
            // Cleans pages that were written through a mapping: later writes to them change the timestamps.
            rustix::fs::fdatasync(&file)?;
            if ChangeStamp::of(&file).ok() != open {
                self.mark_unsynced(num);
                return Ok(None);
            }
        }
        let at_start = ChangeStamp::of(&file)?;
        if open.is_none()
            && self.replica.inner.foreground.may_yield()
            && !is_quiet(&at_start, settle_delay(at_start.size()))
        {
            return Ok(None);
        }
        Ok(Some(OpenSnapshot { num, generation, previous, file, open, at_start, begun }))
    }

    /// Fetches a file that is new to the store and not cached: one whose attributes were changed on this node while other
    /// nodes deleted it, and that was never read here. Returns whether it was fetched.
    pub(super) fn fetch_missing(&self, num: Ino) -> Result<bool, Errno> {
        match self.replica.inner.missing(num, &(0..u64::MAX)) {
            Ok(Some(_)) => {}
            Ok(None) | Err(Errno::STALE) => return Ok(false),
            Err(errno) => return Err(errno),
        }
        match self.replica.inner.ensure_present(num, 0..u64::MAX) {
            Ok(()) => Ok(true),
            // Removed, or the store is unreachable, which is known once this round is over; a later round retries.
            Err(Errno::STALE | Errno::NETUNREACH) => Ok(false),
            // A damaged file does not prevent the upload of others.
            Err(errno) => {
                tracing::debug!("cannot upload file {num}: its content is unavailable: {errno}");
                Ok(false)
            }
        }
    }

    /// Reports whether the data read is the content that the file had at one moment.
    pub(super) fn end_reading(&self, reading: &OpenSnapshot) -> bool {
        let Some(before) = reading.open else { return true };
        let mut attempts = self.attempts.lock();
        if attempts.len() >= MAX_REMEMBERED_READS {
            attempts.clear();
        }
        let delay = (reading.begun.elapsed() * READ_DUTY_DIVISOR).max(MIN_READ_INTERVAL);
        attempts.insert(reading.num, Instant::now() + delay);
        drop(attempts);
        let is_whole = ChangeStamp::of(&reading.file).is_ok_and(|now| now == before);
        if !is_whole {
            self.mark_unsynced(reading.num);
        }
        is_whole
    }

    /// Marks a file that could not be read as still to be uploaded.
    fn mark_unsynced(&self, num: Ino) {
        if let Some(open) = self.replica.inner.db.lock().opens.get_mut(&num) {
            open.synced = true;
        }
    }
}

impl TreeView<'_> {
    /// Sets the modification time of a file open for writing to that of its snapshot, or of the base if there is no snapshot.
    pub(super) fn modified_while_open(
        &self,
        db: &ReplicaDb,
        inode: &Inode,
        object: &mut Object,
    ) -> Result<()> {
        let Some(open) = db.opens.get(&inode.ino).filter(|open| open.writers > 0) else { return Ok(()) };
        let now = ChangeStamp::of(&open.file).map_err(OpError::from)?;
        if self
            .content_cache()
            .lock()
            .get(&inode.ino)
            .is_some_and(|cached| cached.is_valid_for(inode, Some(now)))
        {
            object.modified = Time(now.modified_nanos());
        } else if let Some(Some(base)) = db.base(inode.ino)? {
            object.modified = base.object.modified;
        }
        Ok(())
    }
}
