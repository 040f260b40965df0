//! Decides when a file is worth uploading, and stops reading one that is deleted or written meanwhile.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use shunt_change_stamp::ChangeStamp;

/// The writer of a file larger than this often continues at once, or removes it again.
const LARGE_FILE_BYTES: u64 = 64 << 20;
/// A large file is uploaded after a time without writes: one second per this many bytes, and at most [`MAX_SETTLE_DELAY`].
const SETTLE_BYTES_PER_SECOND: u64 = 256 << 20;
const MAX_SETTLE_DELAY: Duration = Duration::from_secs(10);

/// Bytes read between two checks of the file.
const CHECK_STEP_BYTES: u64 = 8 << 20;

/// Returns how long a closed file of a size must be unmodified before it is uploaded.
pub(super) fn settle_delay(size: u64) -> Duration {
    if size <= LARGE_FILE_BYTES {
        Duration::ZERO
    } else {
        Duration::from_secs_f64(size as f64 / SETTLE_BYTES_PER_SECOND as f64).min(MAX_SETTLE_DELAY)
    }
}

/// Reports whether the file was not written to for a time, or the clock was set back, so that waiting would serve no purpose.
pub(super) fn is_quiet(stamp: &ChangeStamp, time: Duration) -> bool {
    stamp.age().is_none_or(|age| age >= time)
}

/// Reads a file for an upload. Ends early if the file was deleted or written since the given stamp, or if the upload takes too long.
pub(super) struct StableReader<'a> {
    file: &'a File,
    stamp: ChangeStamp,
    takes_long: &'a dyn Fn() -> bool,
    unchecked_bytes: u64,
    /// The file was deleted or written: the data read is discarded.
    pub(super) is_aborted: bool,
    /// The upload took too long: the data read is a prefix of the file.
    pub(super) is_late: bool,
}

impl<'a> StableReader<'a> {
    pub(super) fn new(file: &'a File, stamp: ChangeStamp, takes_long: &'a dyn Fn() -> bool) -> Self {
        Self { file, stamp, takes_long, unchecked_bytes: 0, is_aborted: false, is_late: false }
    }
}

impl Read for StableReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unchecked_bytes >= CHECK_STEP_BYTES {
            let stat = rustix::fs::fstat(self.file)?;
            let now = ChangeStamp::from(&stat);
            self.is_aborted |= stat.st_nlink == 0 || !now.has_same_content(&self.stamp);
            self.is_late |= (self.takes_long)();
            self.unchecked_bytes = 0;
        }
        if self.is_aborted || self.is_late {
            return Ok(0);
        }
        let read = self.file.read(buffer)?;
        self.unchecked_bytes += read as u64;
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
        let mut useful = StableReader::new(&file, ChangeStamp::of(&file).unwrap(), &|| false);
        useful.read_exact(&mut [0]).unwrap();
        change(&path);
        let rest = useful.read_to_end(&mut Vec::new()).unwrap();
        (1 + rest, useful.is_aborted)
    }

    #[test]
    fn deleted_or_modified_file_is_not_read_to_its_end() {
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
        assert_eq!(settle_delay(LARGE_FILE_BYTES), Duration::ZERO);
        assert_eq!(settle_delay(1 << 30), Duration::from_secs(4));
        assert_eq!(settle_delay(u64::MAX), MAX_SETTLE_DELAY);
    }
}
