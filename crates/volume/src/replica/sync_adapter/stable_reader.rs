//! Decides when a file is worth uploading, and stops reading one that is deleted or written meanwhile.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use super::change_cookie::ChangeCookie;

/// The writer of a file larger than this often continues at once, or removes it again.
const LARGE: u64 = 64 << 20;
/// A large file is uploaded after a time without writes: one second per this many bytes, and at most [`SETTLED`].
const SETTLES: u64 = 256 << 20;
const SETTLED: Duration = Duration::from_secs(10);

/// Bytes read between two checks of the file.
const LOOK: u64 = 8 << 20;

/// Returns how long a closed file of a size must be unmodified before it is uploaded.
pub(super) fn settling(size: u64) -> Duration {
    if size <= LARGE {
        Duration::ZERO
    } else {
        Duration::from_secs_f64(size as f64 / SETTLES as f64).min(SETTLED)
    }
}

/// Reads a file for an upload. Ends early if the file was deleted or written since `found`, or if the upload takes too long.
pub(super) struct StableReader<'a> {
    file: &'a File,
    found: ChangeCookie,
    takes_long: &'a dyn Fn() -> bool,
    unseen: u64,
    /// The file was deleted or written: the data read is useless.
    pub(super) is_over: bool,
    /// The upload took too long: the data read is a prefix of the file.
    pub(super) is_late: bool,
}

impl<'a> StableReader<'a> {
    pub(super) fn new(file: &'a File, found: ChangeCookie, takes_long: &'a dyn Fn() -> bool) -> Self {
        Self { file, found, takes_long, unseen: 0, is_over: false, is_late: false }
    }
}

impl Read for StableReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unseen >= LOOK {
            let stat = rustix::fs::fstat(self.file)?;
            let now = ChangeCookie::from(&stat);
            self.is_over |=
                stat.st_nlink == 0 || (now.size, now.modified) != (self.found.size, self.found.modified);
            self.is_late |= (self.takes_long)();
            self.unseen = 0;
        }
        if self.is_over || self.is_late {
            return Ok(0);
        }
        let read = self.file.read(buffer)?;
        self.unseen += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Reads a file of 64 MiB, and calls `change` after the first byte.
    fn read_while(change: impl FnOnce(&std::path::Path)) -> (usize, bool) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        File::create(&path).unwrap().set_len(64 << 20).unwrap();
        let file = File::open(&path).unwrap();
        let mut useful = StableReader::new(&file, ChangeCookie::of(&file).unwrap(), &|| false);
        useful.read_exact(&mut [0]).unwrap();
        change(&path);
        let rest = useful.read_to_end(&mut Vec::new()).unwrap();
        (1 + rest, useful.is_over)
    }

    #[test]
    fn what_was_deleted_or_written_to_is_not_read_to_its_end() {
        assert_eq!(read_while(|_| {}), (64 << 20, false));
        let (read, is_over) = read_while(|path| std::fs::remove_file(path).unwrap());
        assert!(is_over && read < 32 << 20, "{read}");
        let (read, is_over) = read_while(|path| {
            File::options().append(true).open(path).unwrap().write_all(b"more").unwrap();
        });
        assert!(is_over && read < 32 << 20, "{read}");
    }

    #[test]
    fn small_files_are_sent_at_once_and_large_ones_are_not_waited_for_long() {
        assert_eq!(settling(LARGE), Duration::ZERO);
        assert_eq!(settling(1 << 30), Duration::from_secs(4));
        assert_eq!(settling(u64::MAX), SETTLED);
    }
}
