//! When it is of use to send a file, and for how long.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use super::change_cookie::ChangeCookie;

/// Who wrote a file of more bytes often goes on with it at once, or takes it away again.
const LARGE: u64 = 64 << 20;
/// So many bytes of it are waited for a second, and so long at most.
const SETTLES: u64 = 256 << 20;
const SETTLED: Duration = Duration::from_secs(10);

/// Bytes that are read between two looks at the file.
const LOOK: u64 = 8 << 20;

/// How long nobody is to have written to a file of so many bytes that is closed, before it is sent.
pub(super) fn settling(size: u64) -> Duration {
    if size <= LARGE {
        Duration::ZERO
    } else {
        Duration::from_secs_f64(size as f64 / SETTLES as f64).min(SETTLED)
    }
}

/// A file that is read to be sent. It ends early where it was deleted, or written to, since it was `found` so, and when that
/// takes too long.
pub(super) struct StableReader<'a> {
    file: &'a File,
    found: ChangeCookie,
    takes_long: &'a dyn Fn() -> bool,
    unseen: u64,
    /// It ended early: what was read is good for nothing.
    pub(super) is_over: bool,
    /// The same: what was read is a first part of it.
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

    /// Reads a file of 64 MiB, and does something to it after the first byte.
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
