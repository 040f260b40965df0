//! Files open to readers who see less of them.
//!
//! What is blanked is found once and kept as long as the file stays as it is: size and times are looked at before and
//! after each read, and nothing is answered that was read while they moved.
//!
//! Times do not tell of all that happens: a second change within the same tick of the clock leaves no trace, and a write
//! tells its time before it has changed the last byte. So reads are done under a [lease](super::lease), which is granted
//! where nobody has the file open for writing. Where somebody has, nothing is answered of a file that was changed a moment
//! ago. One write that stands still half way for longer than that would be taken for a file at rest.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::fs::Stat;
use rustix::io::Errno;
use shunt_policy::Redaction;
use shunt_policy::redact::{self, Edits, RedactError};

use super::content::Opened;
use super::lease::{Lease, Leases};
use crate::lower::open_files::OpenFile;

/// A tick of the slowest clock, and the time that a write takes, by far.
const FRESH: Duration = Duration::from_millis(50);

/// How often a file that is written to meanwhile is tried, and the time between.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// What tells that a file was changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Stamp {
    fn of(file: impl AsFd) -> Result<Self, Errno> {
        let Stat { st_size, st_mtime, st_mtime_nsec, st_ctime, st_ctime_nsec, .. } = rustix::fs::fstat(file)?;
        Ok(Self { size: st_size, modified: (st_mtime, st_mtime_nsec), changed: (st_ctime, st_ctime_nsec) })
    }

    fn is_fresh(&self) -> bool {
        let changed = Duration::new(self.changed.0.max(0).cast_unsigned(), self.changed.1 as u32);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(changed) < FRESH
    }
}

/// A file open to somebody who does not see all of it.
pub(super) struct Redacted {
    file: Arc<OpenFile>,
    redaction: Arc<Redaction>,
    leases: Leases,
    found: Mutex<Option<(Stamp, Arc<Edits>)>>,
}

impl Redacted {
    /// Finds what is to be blanked.
    ///
    /// # Errors
    /// EACCES where that would take too long; those of reading.
    pub(super) fn new(file: Arc<OpenFile>, redaction: Arc<Redaction>) -> Result<Self, Errno> {
        let redacted = Self::again(file, redaction);
        let stamp = Stamp::of(&redacted.file)?;
        if !stamp.is_fresh() {
            redacted.edits(stamp)?;
        }
        Ok(redacted)
    }

    /// One that an earlier daemon had opened. What is to be blanked is found when it is read.
    pub(super) fn again(file: Arc<OpenFile>, redaction: Arc<Redaction>) -> Self {
        Self { file, redaction, leases: Leases::default(), found: Mutex::default() }
    }

    /// Of a file that looked like this.
    fn edits(&self, stamp: Stamp) -> Result<Arc<Edits>, Errno> {
        if let Some((known, edits)) = &*self.found.lock()
            && *known == stamp
        {
            return Ok(edits.clone());
        }
        let edits =
            redact::find(&self.redaction, &Opened(self.file.as_fd())).map_err(|error| match error {
                RedactError::Io(error) => Errno::from_io_error(&error).unwrap_or(Errno::IO),
                RedactError::TooComplex => Errno::ACCESS,
            })?;
        let edits = Arc::new(edits);
        // What changes next might look the same.
        if !stamp.is_fresh() {
            *self.found.lock() = Some((stamp, edits.clone()));
        }
        Ok(edits)
    }

    /// What readers see.
    ///
    /// # Errors
    /// EAGAIN where the file does not stay as it is for long enough; those of reading.
    pub(super) fn read(&self, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let mut room = vec![0; size as usize];
        for _ in 0..TRIES {
            let lease = self.leases.take(&self.file);
            let stamp = Stamp::of(&self.file)?;
            if lease.is_none() && stamp.is_fresh() {
                std::thread::sleep(PAUSE);
                continue;
            }
            let edits = self.edits(stamp)?;
            let mut done = 0;
            while done < room.len() {
                match rustix::io::pread(&self.file, &mut room[done..], offset.saturating_add(done as u64)) {
                    Ok(0) => break,
                    Ok(n) => done += n,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
            let quiet = lease.as_ref().is_some_and(Lease::held) || !stamp.is_fresh();
            if quiet && Stamp::of(&self.file)? == stamp {
                room.truncate(done);
                edits.apply(offset, &mut room);
                return Ok(room);
            }
        }
        Err(Errno::AGAIN)
    }
}

/// Those that are open, by handle.
#[derive(Default)]
pub(super) struct RedactedFiles(Mutex<HashMap<u64, Arc<Redacted>>>);

impl RedactedFiles {
    pub(super) fn add(&self, handle: u64, file: Redacted) {
        self.0.lock().insert(handle, Arc::new(file));
    }

    pub(super) fn get(&self, handle: u64) -> Option<Arc<Redacted>> {
        self.0.lock().get(&handle).cloned()
    }

    pub(super) fn remove(&self, handle: u64) {
        self.0.lock().remove(&handle);
    }
}
