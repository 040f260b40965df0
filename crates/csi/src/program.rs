//! The binary on the host. A daemon runs a copy of the plugin's binary in the state directory, because files of the container's image
//! disappear with it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::record_file::create_private_dir;

/// Copies a binary into a state directory, unless it is there, and returns the path of the copy. The name has the version and a hash of the
/// content, so that a copy is never changed.
///
/// # Errors
/// The errors of the file system.
pub fn install(binary: &mut File, version: &str, state_dir: &Path) -> io::Result<PathBuf> {
    let mut hasher = HashWriter(Sha256::new());
    io::Seek::rewind(binary)?;
    io::copy(binary, &mut hasher)?;
    let hash: String = hasher.0.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let directory = state_dir.join("bin");
    create_private_dir(&directory)?;
    let path = directory.join(format!("shunt-{version}-{hash}"));
    if path.exists() {
        return Ok(path);
    }
    let temporary = directory.join("new");
    let mut options = OpenOptions::new();
    let mut copy = options.write(true).create(true).truncate(true).mode(0o755).open(&temporary)?;
    io::Seek::rewind(binary)?;
    io::copy(binary, &mut copy)?;
    copy.sync_all()?;
    fs::rename(&temporary, &path)?;
    Ok(path)
}

/// Removes copies in a state directory other than `current` that no process runs. A guardian runs the copy that it started with.
///
/// # Errors
/// The directory or the list of processes cannot be read: then none is removed.
pub fn remove_unused(current: &Path, state_dir: &Path) -> io::Result<()> {
    let mut running = Vec::new();
    for entry in fs::read_dir("/proc")? {
        running.extend(fs::metadata(entry?.path().join("exe")).ok().map(|file| (file.dev(), file.ino())));
    }
    for entry in fs::read_dir(state_dir.join("bin"))? {
        let path = entry?.path();
        let file = fs::metadata(&path)?;
        if path != current && !running.contains(&(file.dev(), file.ino())) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Reports whether a process runs this file.
pub(crate) fn runs(pid: u32, program: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let running = id(Path::new(&format!("/proc/{pid}/exe")));
    running.is_some() && running == id(program)
}

struct HashWriter(Sha256);

impl io::Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn copies_are_kept_by_content() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        fs::write(&one, "1").unwrap();
        fs::write(&two, "2").unwrap();
        let install = |path: &Path| install(&mut File::open(path).unwrap(), "0.1.0", dir.path()).unwrap();
        let (first, second) = (install(&one), install(&two));
        assert_ne!(first, second);
        assert_eq!(install(&one), first);
        assert_eq!(fs::read_to_string(&first).unwrap(), "1");
        assert_eq!(fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o755);
        remove_unused(&second, dir.path()).unwrap();
        assert!(!first.exists() && second.exists());
    }
}
