//! Writeback throttling and read-ahead of a mount, `/sys/class/bdi/MAJOR:MINOR`.
//!
//! A FUSE mount starts with `max_ratio` 1 and `strict_limit` 1: writers to its write-back cache may dirty one percent of memory
//! and are throttled hard beyond that. Only root may change the values.

use std::path::PathBuf;
use std::{fs, io};

use super::MountPoint;

/// Values to set; `None` keeps the kernel's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BdiTuning {
    /// The share of the dirty-page limit that this mount may use, 0 to 100 percent.
    pub max_ratio: Option<u32>,
    /// Enforces the share even while little memory is dirty.
    pub strict_limit: Option<bool>,
    /// The read-ahead window in KiB.
    pub read_ahead_kb: Option<u32>,
}

/// The result of applying a [`BdiTuning`].
#[derive(Debug, Default)]
pub struct BdiReport {
    /// The files written, with their values.
    pub set: Vec<(&'static str, u32)>,
    /// The files that could not be written, with the requested values and the errors.
    pub refused: Vec<(&'static str, u32, io::Error)>,
}

impl BdiTuning {
    /// Sets what can be set; a refusal is reported and does not stop the others.
    pub fn apply(&self, mount: &MountPoint) -> BdiReport {
        let dir = directory(mount);
        let mut report = BdiReport::default();
        let settings = [
            ("max_ratio", self.max_ratio),
            ("strict_limit", self.strict_limit.map(u32::from)),
            ("read_ahead_kb", self.read_ahead_kb),
        ];
        for (file, value) in settings {
            let Some(value) = value else { continue };
            match fs::write(dir.join(file), value.to_string()) {
                Ok(()) => report.set.push((file, value)),
                Err(error) => report.refused.push((file, value, error)),
            }
        }
        report
    }
}

/// Returns the directory in sysfs. The plain name belongs to the disk itself where there is one; its FUSE mount has a suffix.
fn directory(mount: &MountPoint) -> PathBuf {
    let suffix = if mount.dev().major == 0 { "" } else { "-fuseblk" };
    PathBuf::from(format!("/sys/class/bdi/{}{suffix}", mount.dev()))
}
