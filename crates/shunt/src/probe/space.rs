//! The result of statfs(2), as the child passes it on.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The free space of a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// The path that was asked about, or its nearest existing parent.
    pub path: PathBuf,
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// Size of the file system, in bytes.
    pub total_bytes: u64,
    /// Inodes that this user may still create.
    pub free_inodes: u64,
    /// Number of inodes; zero if it is not limited.
    pub inodes: u64,
}

impl Space {
    /// Calls statfs(2), without a time limit.
    ///
    /// # Errors
    /// Returns the errors of the call.
    pub fn of(path: &Path) -> Result<Self, Errno> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(Space {
            // As text, so that it can be passed on as JSON.
            path: path.to_string_lossy().into_owned().into(),
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            free_inodes: stat.f_favail,
            inodes: stat.f_files,
        })
    }
}

pub fn write(path: &Path) -> Vec<u8> {
    let result = Space::of(path).map_err(Errno::raw_os_error);
    serde_json::to_vec(&result).unwrap_or_default()
}

pub fn write_of_existing(path: &Path) -> Vec<u8> {
    write(path.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(path))
}

pub fn parse(answer: &[u8]) -> Option<Result<Space, Errno>> {
    let result: Result<Space, i32> = serde_json::from_slice(answer).ok()?;
    Some(result.map_err(Errno::from_raw_os_error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_survive_the_way_through_a_pipe() {
        let space = parse(&write(Path::new("/proc"))).unwrap().unwrap();
        assert_eq!(space.path, Path::new("/proc"));
        assert_eq!(parse(&write(Path::new("/proc/none"))), Some(Err(Errno::NOENT)));
        let existing = parse(&write_of_existing(Path::new("/proc/none/x"))).unwrap().unwrap();
        assert_eq!(existing.path, Path::new("/proc"));
        assert_eq!(parse(b""), None);
    }
}
