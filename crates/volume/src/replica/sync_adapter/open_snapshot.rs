//! Files that are sent while somebody has them open to be written.
//!
//! Databases, editors and logs keep files open for days. What such a program made to last goes to the store as of a moment
//! at which nobody wrote: a file that looks the same before and after it was read held that all the time. It goes on
//! being a change of this node until it is closed.

use std::collections::HashMap;
use std::fs::File;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::stable_reader::settle_delay;
use super::tree_view::TreeView;
use super::{CachedContent, SyncAdapter};
use crate::merge::Ino;
use crate::object::{Content, Object, Time};
use crate::replica::CacheState;
use crate::replica::db::ReplicaDb;
use crate::replica::db::inode::Inode;
use crate::replica::error::{OpError, Result};

/// Nobody wrote for so long: clocks of file systems are coarser than writes are apart.
const QUIESCENT_FOR: Duration = Duration::from_millis(100);

/// A file is read so seldom while it is open that reading takes this part of the time at most, and at most so often.
const READ_DUTY_DIVISOR: u32 = 10;
const MIN_READ_INTERVAL: Duration = Duration::from_millis(500);

/// Open files whose reading is remembered.
const MAX_REMEMBERED_READS: usize = 4096;

/// When open files may be read again.
pub(super) type ReadAttempts = Mutex<HashMap<Ino, Instant>>;

/// By which it is seen that a file was written: its length, and the times of its last write and change, which no program
/// can both set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::replica) struct ChangeCookie {
    pub(super) size: u64,
    pub(super) modified: (i64, u64),
    changed: (i64, u64),
}

impl From<&rustix::fs::Stat> for ChangeCookie {
    fn from(stat: &rustix::fs::Stat) -> Self {
        Self {
            size: stat.st_size as u64,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl ChangeCookie {
    pub(super) fn of(file: &File) -> std::io::Result<Self> {
        Ok(Self::from(&rustix::fs::fstat(file)?))
    }

    fn time(&self) -> Time {
        Time(self.modified.0.saturating_mul(1_000_000_000).saturating_add(self.modified.1 as i64))
    }

    /// Whether nobody wrote for so long.
    pub(super) fn is_quiet(&self, long: Duration) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let changed = Duration::new(seconds.max(0) as u64, nanoseconds as u32);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // A clock that was set back is no reason to wait for it.
        now.checked_sub(changed).is_none_or(|since| since >= long)
    }
}

impl CachedContent {
    /// Whether a file holds the same still. `open`: how it looks, where somebody has it open to be written.
    pub(super) fn is_valid_for(&self, node: &Inode, open: Option<ChangeCookie>) -> bool {
        let same = match (self.open, open) {
            (before, Some(now)) => before == Some(now),
            (Some(before), None) => (before.size, before.time()) == (node.size, node.modified),
            (None, None) => true,
        };
        same && self.generation == node.generation
    }
}

/// A file that is being read to be sent.
pub(super) struct OpenSnapshot {
    num: Ino,
    pub(super) generation: u64,
    pub(super) previous: Content,
    pub(super) file: File,
    /// It is open to be written, and looked like this.
    pub(super) open: Option<ChangeCookie>,
    /// How it looks.
    pub(super) found: ChangeCookie,
    begun: Instant,
}

impl SyncAdapter {
    /// `None`: not now.
    pub(super) fn begin_reading(&self, num: Ino) -> Result<Option<OpenSnapshot>, Errno> {
        let begun = Instant::now();
        let found = self.replica.inner.read_in_background(|core| {
            let Some(node) = core.find(num)?.filter(|node| node.state == CacheState::Complete) else {
                return Ok(None);
            };
            let mut stamp = None;
            let previous = core.content(num)?;
            if let Some(open) = core.opens.get_mut(&num).filter(|open| open.writers > 0) {
                let now = ChangeCookie::of(&open.file).map_err(OpError::from)?;
                let was_read = self
                    .content_cache
                    .lock()
                    .get(&num)
                    .is_some_and(|cached| cached.is_valid_for(&node, Some(now)));
                let is_due = self.attempts.lock().get(&num).is_none_or(|due| *due <= begun);
                if !(open.synced || was_read) || !is_due || !now.is_quiet(QUIESCENT_FOR) {
                    return Ok(None);
                }
                open.synced = false;
                stamp = Some(now);
            }
            Ok(Some((node.generation, previous, stamp)))
        })?;
        let Some((generation, previous, open)) = found else { return Ok(None) };
        let Some(file) = self.replica.backing(num) else { return Ok(None) };
        if open.is_some() {
            // Pages that a mapping wrote are clean after this: who writes to them again is seen.
            rustix::fs::fdatasync(&file)?;
            if ChangeCookie::of(&file).ok() != open {
                self.mark_unsynced(num);
                return Ok(None);
            }
        }
        let found = ChangeCookie::from(&rustix::fs::fstat(&file)?);
        if open.is_none()
            && self.replica.inner.foreground.may_yield()
            && !found.is_quiet(settle_delay(found.size))
        {
            return Ok(None);
        }
        Ok(Some(OpenSnapshot { num, generation, previous, file, open, found, begun }))
    }

    /// A file may be new to the store and not be here: what was changed of it while others deleted it, before anybody here
    /// read it. Whether it came.
    pub(super) fn fetch_missing(&self, num: Ino) -> Result<bool, Errno> {
        match self.replica.inner.missing(num, &(0..u64::MAX)) {
            Ok(Some(_)) => {}
            Ok(None) | Err(Errno::STALE) => return Ok(false),
            Err(errno) => return Err(errno),
        }
        match self.replica.inner.ensure_present(num, 0..u64::MAX) {
            Ok(()) => Ok(true),
            // Gone; or whether the store is in reach is known once this round is over, and it is tried again then.
            Err(Errno::STALE | Errno::NETUNREACH) => Ok(false),
            // One that is damaged keeps no other from going.
            Err(errno) => {
                tracing::debug!("file {num} cannot be sent, since what it holds cannot be had: {errno}");
                Ok(false)
            }
        }
    }

    /// Whether what was read is what the file held at one moment.
    pub(super) fn end_reading(&self, reading: &OpenSnapshot) -> bool {
        let Some(before) = reading.open else { return true };
        let mut attempts = self.attempts.lock();
        if attempts.len() >= MAX_REMEMBERED_READS {
            attempts.clear();
        }
        let again = (reading.begun.elapsed() * READ_DUTY_DIVISOR).max(MIN_READ_INTERVAL);
        attempts.insert(reading.num, Instant::now() + again);
        drop(attempts);
        let is_whole = ChangeCookie::of(&reading.file).is_ok_and(|now| now == before);
        if !is_whole {
            self.mark_unsynced(reading.num);
        }
        is_whole
    }

    /// A file could not be read: it is to be sent still.
    fn mark_unsynced(&self, num: Ino) {
        if let Some(open) = self.replica.inner.core.lock().opens.get_mut(&num) {
            open.synced = true;
        }
    }
}

impl TreeView<'_> {
    /// The time of a file that is open to be written goes with what it holds.
    pub(super) fn modified_while_open(
        &self,
        core: &ReplicaDb,
        node: &Inode,
        object: &mut Object,
    ) -> Result<()> {
        let Some(open) = core.opens.get(&node.ino).filter(|open| open.writers > 0) else { return Ok(()) };
        let now = ChangeCookie::of(&open.file).map_err(OpError::from)?;
        if self
            .content_cache()
            .lock()
            .get(&node.ino)
            .is_some_and(|cached| cached.is_valid_for(node, Some(now)))
        {
            object.modified = now.time();
        } else if let Some(Some(base)) = core.base(node.ino)? {
            object.modified = base.object.modified;
        }
        Ok(())
    }
}
