//! The table of open backing files: one entry per file, however often it is open.

use rustix::fs::fstat;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

/// A file that is open.
pub(crate) struct OpenFile {
    /// Tells those who opened it from those who opened what was in its place before.
    pub(crate) session: u64,
    pub(crate) file: Arc<File>,
    pub(crate) readers: u32,
    pub(crate) writers: u32,
    /// What it holds was made to last since it was last sent.
    pub(crate) synced: bool,
    /// Its length was counted as it grew, or shrank.
    pub(crate) has_grown: bool,
    /// It may be mapped to be written, past all opens.
    pub(crate) maps_writable: bool,
    /// `file` can be read only.
    pub(crate) reads_only: bool,
}

impl OpenFile {
    /// Whether somebody else than this process can write to it still, as `has_writers` tells of a file that no descriptor
    /// here is open of to be written.
    pub(crate) fn is_written_elsewhere(&mut self, has_writers: impl Fn(&File) -> bool) -> bool {
        let Ok(reading) = reopen(&self.file, false) else { return false };
        let own = std::mem::replace(&mut self.file, Arc::new(reading));
        match Arc::try_unwrap(own) {
            Ok(own) => drop(own),
            // Somebody reads, or sends, what it holds.
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

/// The same file, opened anew, whatever name it has by now.
pub(crate) fn reopen(file: &File, write: bool) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).write(write).open(path)
}

pub(crate) fn is_same(one: &File, other: &File) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}
