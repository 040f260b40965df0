//! Files that only their owner can access: keys, credentials, and addresses of volumes. They are written atomically with mode
//! 0600, and a file with wider permissions is not read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// Permission bits of group and others.
const OTHERS: u32 = 0o077;

/// Replaces the content of a file atomically and durably; the file is accessible only to its owner from the beginning. Neither
/// a temporary file left by a crash nor a link placed in its path is written through.
///
/// # Errors
/// An [`io::Error`] of the file system. Unless the final fsync of the directory failed, the file is unchanged then.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut new = std::ffi::OsString::from(".");
    new.push(name);
    new.push(format!(".{}-{}.new", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let new = path.with_file_name(new);
    // Left by an earlier process with the same id.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let placed = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&new, path));
    if placed.is_err() {
        let _ = fs::remove_file(&new);
    }
    placed?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match File::open(directory.unwrap_or(Path::new("."))) {
        Ok(directory) => directory.sync_all(),
        // A sandboxed daemon may replace the file, but not open the directory.
        Err(_) => Ok(()),
    }
}

/// Opens a private file for reading.
///
/// # Errors
/// An [`io::Error`] of `open(2)`; `PermissionDenied`, with the remedy, if others than the owner may read or write the file.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    if file.metadata()?.mode() & OTHERS != 0 {
        let help = format!("others can read it: chmod 600 {}", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, help));
    }
    Ok(file)
}

/// Removes the permissions of group and others on a regular file or directory owned by the effective user; anything else stays
/// unchanged.
///
/// # Errors
/// An [`io::Error`] of the file system; none if the file does not exist.
pub fn tighten(path: &Path) -> io::Result<()> {
    // O_PATH: closing an ordinary descriptor would release all POSIX locks of the process on the file, which may be a database.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        file => file?,
    };
    let is = rustix::fs::fstat(&file)?;
    let ours = matches!(FileType::from_raw_mode(is.st_mode), FileType::RegularFile | FileType::Directory)
        && is.st_uid == rustix::process::geteuid().as_raw();
    if ours && is.st_mode & OTHERS != 0 {
        let mode = fs::Permissions::from_mode(is.st_mode & 0o7777 & !OTHERS);
        fs::set_permissions(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn private_file_is_not_written_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("secret"), dir.path().join("victim"));
        fs::write(&victim, "unharmed").unwrap();
        symlink(&victim, &path).unwrap();
        for n in 0..50 {
            symlink(&victim, dir.path().join(format!(".secret.{}-{n}.new", std::process::id()))).unwrap();
        }
        write(&path, b"key").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "unharmed");
        let is = path.symlink_metadata().unwrap();
        assert!(is.is_file() && is.mode() & 0o7777 == 0o600);
        let mut text = String::new();
        open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "key");
    }

    #[test]
    fn files_are_tightened_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("file"), dir.path().join("link"));
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
        symlink("file", &link).unwrap();
        tighten(&link).unwrap();
        assert_eq!(mode(), 0o664);
        tighten(&path).unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        tighten(dir.path()).unwrap();
        assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o7777, 0o700);
        tighten(&dir.path().join("none")).unwrap();
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        write(&path, b"key").unwrap();
        for mode in [0o640, 0o604, 0o620, 0o611] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(open(&path).unwrap_err().to_string().contains("chmod 600"), "{mode:o}");
        }
        // Rewriting restores the permissions.
        write(&path, b"other").unwrap();
        assert!(open(&path).is_ok());
        assert_eq!(names(dir.path()), ["secret"]);
    }
}
