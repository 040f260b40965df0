//! Change stamps: two equal stamps of a file prove that nobody wrote to it in between, provided that the first one has an
//! [age](ChangeStamp::age) of more than a clock tick. A stamp consists of the file's identity, its size, and the times of its last
//! modification and change, which no program can both set back.
//!
//! Times have the resolution of the kernel's clock tick (up to 10 ms). A write in the same tick as the first stamp can therefore
//! leave an equal one.

use std::fs::Metadata;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

/// A point in time: seconds since 1970, and nanoseconds.
type Timestamp = (i64, i64);

/// Identifies one state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: Timestamp,
    changed: Timestamp,
}

impl From<&Stat> for ChangeStamp {
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size.cast_unsigned(),
            modified: (stat.st_mtime, stat.st_mtime_nsec.cast_signed()),
            changed: (stat.st_ctime, stat.st_ctime_nsec.cast_signed()),
        }
    }
}

impl From<&Metadata> for ChangeStamp {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl ChangeStamp {
    /// Returns the stamp of an open file.
    ///
    /// # Errors
    /// The error of `fstat(2)`.
    pub fn of(file: impl AsFd) -> rustix::io::Result<Self> {
        Ok(Self::from(&rustix::fs::fstat(file)?))
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the time of the last modification, in nanoseconds since 1970.
    pub fn modified_nanos(&self) -> i64 {
        self.modified.0.saturating_mul(1_000_000_000).saturating_add(self.modified.1)
    }

    /// Reports whether both are stamps of the same inode.
    pub fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Reports whether both have the same size and modification time, also if attributes were changed in between.
    pub fn has_same_content(&self, other: &Self) -> bool {
        (self.size, self.modified) == (other.size, other.modified)
    }

    /// Returns the time since the last change; `None` if it is in the future, because the clock was set back.
    pub fn age(&self) -> Option<Duration> {
        let (seconds, nanoseconds) = self.changed;
        let changed = Duration::new(seconds.max(0).cast_unsigned(), nanoseconds as u32);
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().checked_sub(changed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write as _;

    use super::*;

    #[test]
    fn every_write_changes_the_stamp() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let empty = ChangeStamp::of(&file).unwrap();
        assert!(empty.age().is_some_and(|age| age < Duration::from_secs(60)));
        file.write_all(b"a").unwrap();
        let written = ChangeStamp::of(&file).unwrap();
        assert_ne!(written, empty);
        assert!(written.is_same_file(&empty) && !written.has_same_content(&empty));
        assert_eq!(written.size(), 1);
        assert_eq!(ChangeStamp::from(&fs::metadata(file.path()).unwrap()), written);
        std::thread::sleep(Duration::from_millis(30));
        assert!(written.age().is_some_and(|age| age > Duration::from_millis(20)));
    }

    #[test]
    fn changed_attributes_leave_the_content_the_same() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let before = ChangeStamp::of(&file).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR).unwrap();
        let after = ChangeStamp::of(&file).unwrap();
        assert!(after != before && after.has_same_content(&before));
        assert!(!ChangeStamp::of(File::open("/").unwrap()).unwrap().is_same_file(&after));
    }
}
