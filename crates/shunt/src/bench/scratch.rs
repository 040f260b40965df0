//! The fresh subdirectory in which a side works.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::error::{Result, failed};

/// A new directory, removed on drop with all that is in it.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// The directory in the source that a mirror shows as this one.
    below: Option<PathBuf>,
    removed: bool,
}

impl Scratch {
    /// Creates `.shunt-bench-NUMBER` in a directory, accessible to this user only. `below` is the directory that a mirror shows as
    /// `parent`.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn new(parent: &Path, below: Option<&Path>) -> Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
        for _ in 0..8 {
            let name = format!(".shunt-bench-{:016x}", rand::random::<u64>());
            let path = parent.join(&name);
            let below = below.map(|below| below.join(name));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Scratch { path, below, removed: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                Err(error) => {
                    last = error;
                    break;
                }
            }
        }
        let remedy = "name a directory that this user may write to";
        Err(failed(format_args!("cannot create a directory in {}: {last}; {remedy}", parent.display())))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory in the source that a mirror shows as this one.
    pub fn below(&self) -> Option<&Path> {
        self.below.as_deref()
    }

    /// Removes it.
    ///
    /// # Errors
    /// It cannot be removed, and is left behind.
    pub fn remove(mut self) -> Result<()> {
        self.removed = true;
        self.remove_all().map_err(|error| self.left(&error))
    }

    /// Removes it through the mount, or in the source if the mount died.
    fn remove_all(&self) -> io::Result<()> {
        let removed = std::fs::remove_dir_all(&self.path);
        match (&removed, &self.below) {
            (Err(_), Some(below)) => std::fs::remove_dir_all(below).or(removed),
            _ => removed,
        }
    }

    fn left(&self, error: &io::Error) -> crate::error::Failure {
        failed(format_args!("cannot remove {}: {error}; remove it", self.path.display()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.removed
            && let Err(error) = self.remove_all()
        {
            use std::io::Write as _;
            let _ = writeln!(io::stderr(), "shunt: {}", self.left(&error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(dir.path(), None).unwrap();
        std::fs::create_dir(scratch.path().join("sub")).unwrap();
        std::fs::write(scratch.path().join("sub/file"), "x").unwrap();
        drop(scratch);
        Scratch::new(dir.path(), None).unwrap().remove().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(Scratch::new(&dir.path().join("none"), None).is_err());
    }
}
