//! Redacted files: open files whose readers do not see all of the contents.
//!
//! The ranges to blank are computed once and kept until the file changes: size and times are checked before and after
//! each read, and data read while they changed is discarded.
//!
//! Times do not reveal every change: a second change within the same clock tick leaves no trace, and a write updates
//! the time before it has changed the last byte. So reads happen under a [lease](crate::lease), which the kernel grants
//! while no process has the file open for writing. Without a lease, a file that changed a moment ago is not read. A
//! single write that pauses half way for longer than that would be mistaken for a file at rest.

use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use shunt_change_stamp::ChangeStamp;
use shunt_mirror::lower::open_files::OpenFile;
use shunt_policy::Redaction;
use shunt_policy::redact::{self, Edits, RedactError};

use crate::content::Opened;
use crate::lease::{Lease, Leases};

/// Age below which a file may still be changing: well above a tick of the slowest clock and the duration of a write.
const RECENT_CHANGE_AGE: Duration = Duration::from_millis(50);

/// Number of attempts to read a file that is being written.
const MAX_ATTEMPTS: u32 = 20;
/// Delay between these attempts.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// Reports whether the file may still be changing. A change in the future, after the clock was set back, may be one of now.
fn is_fresh(stamp: &ChangeStamp) -> bool {
    stamp.age().is_none_or(|age| age < RECENT_CHANGE_AGE)
}

/// A file that is open with a redaction.
pub(crate) struct Redacted {
    file: Arc<OpenFile>,
    redaction: Arc<Redaction>,
    leases: Leases,
    found: Mutex<Option<(ChangeStamp, Arc<Edits>)>>,
}

impl Redacted {
    /// Opens a redacted file and computes the ranges to blank.
    ///
    /// # Errors
    /// EACCES if that would take too long, or the error of reading.
    pub(crate) fn new(file: Arc<OpenFile>, redaction: Arc<Redaction>) -> Result<Self, Errno> {
        let redacted = Self::from_takeover(file, redaction);
        let stamp = ChangeStamp::of(&redacted.file)?;
        if !is_fresh(&stamp) {
            redacted.edits(stamp)?;
        }
        Ok(redacted)
    }

    /// Wraps a file that an earlier daemon had opened. The ranges to blank are computed at the first read.
    pub(crate) fn from_takeover(file: Arc<OpenFile>, redaction: Arc<Redaction>) -> Self {
        Self { file, redaction, leases: Leases::default(), found: Mutex::default() }
    }

    /// Returns the edits of a file that has the given stamp.
    fn edits(&self, stamp: ChangeStamp) -> Result<Arc<Edits>, Errno> {
        if let Some((found_stamp, edits)) = &*self.found.lock()
            && *found_stamp == stamp
        {
            return Ok(edits.clone());
        }
        let edits =
            redact::find(&self.redaction, &Opened(self.file.as_fd())).map_err(|error| match error {
                RedactError::Io(error) => Errno::from_io_error(&error).unwrap_or(Errno::IO),
                RedactError::TooComplex => Errno::ACCESS,
            })?;
        let edits = Arc::new(edits);
        // The next change might leave the same stamp.
        if !is_fresh(&stamp) {
            let outdated = self.found.lock().replace((stamp, edits.clone()));
            drop(outdated);
        }
        Ok(edits)
    }

    /// Reads the redacted contents.
    ///
    /// # Errors
    /// EAGAIN if the file does not stay unchanged for long enough, or the error of reading.
    pub(crate) fn read(&self, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let mut data = vec![0; size as usize];
        for _ in 0..MAX_ATTEMPTS {
            let lease = self.leases.take(&self.file);
            let stamp = ChangeStamp::of(&self.file)?;
            if lease.is_none() && is_fresh(&stamp) {
                std::thread::sleep(RETRY_DELAY);
                continue;
            }
            let edits = self.edits(stamp)?;
            let mut done = 0;
            while done < data.len() {
                match rustix::io::pread(&self.file, &mut data[done..], offset.saturating_add(done as u64)) {
                    Ok(0) => break,
                    Ok(n) => done += n,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
            let quiet = lease.as_ref().is_some_and(Lease::is_intact) || !is_fresh(&stamp);
            if quiet && ChangeStamp::of(&self.file)? == stamp {
                data.truncate(done);
                edits.apply(offset, &mut data);
                return Ok(data);
            }
        }
        Err(Errno::AGAIN)
    }
}

/// Redacted open files by handle.
#[derive(Default)]
pub(crate) struct RedactedFiles(Mutex<HashMap<u64, Arc<Redacted>>>);

impl RedactedFiles {
    pub(crate) fn add(&self, handle: u64, file: Redacted) {
        self.0.lock().insert(handle, Arc::new(file));
    }

    pub(crate) fn get(&self, handle: u64) -> Option<Arc<Redacted>> {
        self.0.lock().get(&handle).cloned()
    }

    pub(crate) fn remove(&self, handle: u64) {
        let file = self.0.lock().remove(&handle);
        // Closing a file may take a while, so it happens outside the lock.
        drop(file);
    }
}
