//! Reads the end of a log file. Root must not read a file on behalf of another user.

use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Limit of the bytes that are read.
pub const MAX_FILE_BYTES: u64 = 512 << 10;

/// The end of a regular file of `owner`.
pub fn read(path: &Path, owner: u32) -> Option<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.uid() != owner {
        return None;
    }
    file.seek(SeekFrom::Start(metadata.len().saturating_sub(MAX_FILE_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_and_links_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("log"), dir.path().join("link"));
        std::fs::write(&file, "line\n").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(read(&file, me).as_deref(), Some(&b"line\n"[..]));
        assert_eq!(read(&file, me + 1), None);
        assert_eq!(read(&link, me), None);
        assert_eq!(read(dir.path(), me), None);
    }
}
