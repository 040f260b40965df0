//! The table of open backing files: one entry per file, however often it is open.

use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use rustix::fs::fstat;

/// An open file.
pub(crate) struct OpenFile {
    /// Distinguishes this version of the file from earlier and later ones.
    pub(crate) session: u64,
    pub(crate) file: Arc<File>,
    pub(crate) readers: u32,
    pub(crate) writers: u32,
    /// Its data was fsynced since it was last uploaded.
    pub(crate) synced: bool,
    /// Its new length was recorded while it was open.
    pub(crate) length_recorded: bool,
    /// It may be mapped writably, and then written without an open.
    pub(crate) maps_writable: bool,
    /// `file` is read-only.
    pub(crate) reads_only: bool,
}

impl OpenFile {
    /// Reports whether another process can still write to the file. `has_writers` answers that for a file of which this
    /// process has no writable descriptor.
    pub(crate) fn is_written_elsewhere(&mut self, has_writers: impl Fn(&File) -> bool) -> bool {
        let Ok(reading) = reopen(&self.file, false) else { return false };
        let own = std::mem::replace(&mut self.file, Arc::new(reading));
        match Arc::try_unwrap(own) {
            Ok(own) => drop(own),
            // A reader or an upload uses the descriptor.
            Err(own) => {
                self.file = own;
                return true;
            }
        }
        let is_written = has_writers(&self.file);
        self.reads_only = true;
        if is_written && let Ok(writing) = reopen(&self.file, true) {
            self.file = Arc::new(writing);
            self.reads_only = false;
        }
        is_written
    }
}

/// Opens a file again, independent of its current name.
pub(crate) fn reopen(file: &File, write: bool) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).write(write).open(path)
}

pub(crate) fn is_same(one: &File, other: &File) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}
