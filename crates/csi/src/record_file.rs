//! Small JSON files that are replaced atomically: after a crash a file has its old or its new content.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

/// Limit of a file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A file name for a volume id, which may contain any character: a readable part and a hash.
pub(crate) fn file_name(volume_id: &str) -> String {
    let readable = volume_id.chars().take(40);
    let readable: String =
        readable.map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    format!("{readable}-{}", digest(volume_id.as_bytes()))
}

/// The first 64 bits of the SHA-256 of some bytes, as hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Creates a directory that only this user may access, and its parents.
///
/// # Errors
/// The errors of mkdir(2), except that it exists.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Reads a file; `None` if there is none.
///
/// # Errors
/// The file cannot be read, or is not of this type.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map(Some).map_err(io::Error::other)
}

/// Writes a file as JSON, which is on disk when this returns.
///
/// # Errors
/// The errors of the file system.
pub(crate) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write_bytes(path, &serde_json::to_vec_pretty(value).map_err(io::Error::other)?)
}

/// Writes a file that only this user may read.
///
/// # Errors
/// The errors of the file system.
pub(crate) fn write_bytes(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let temporary = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(directory)?.sync_all()
}

/// Removes a file, if there is one.
///
/// # Errors
/// The errors of unlink(2), except that it does not exist.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_safe_and_distinct() {
        for id in ["../../etc/passwd", "pvc-1", "", ".", &"x/".repeat(64)] {
            let name = file_name(id);
            assert!(name.len() <= 57 && !name.contains(['/', '.']), "{name}");
        }
        assert_ne!(file_name("a/b"), file_name("a.b"));
    }

    #[test]
    fn a_torn_write_leaves_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        assert_eq!(read::<u32>(&path).unwrap(), None);
        write(&path, &7).unwrap();
        fs::write(path.with_extension("new"), "{").unwrap();
        assert_eq!(read::<u32>(&path).unwrap(), Some(7));
        write(&path, &8).unwrap();
        assert_eq!(read::<u32>(&path).unwrap(), Some(8));
        fs::write(&path, "{").unwrap();
        read::<u32>(&path).unwrap_err();
    }
}
