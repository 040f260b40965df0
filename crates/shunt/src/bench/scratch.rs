//! The fresh subdirectory in which a side works.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::error::{Result, failed};

/// A new directory, removed on drop with all that is in it.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    removed: bool,
}

impl Scratch {
    /// Creates `.shunt-bench-NUMBER` in a directory, accessible to this user only.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn new(parent: &Path) -> Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
        for _ in 0..8 {
            let path = parent.join(format!(".shunt-bench-{:016x}", rand::random::<u64>()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Scratch { path, removed: false }),
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

    /// Removes it.
    ///
    /// # Errors
    /// It cannot be removed, and is left behind.
    pub fn remove(mut self) -> Result<()> {
        self.removed = true;
        std::fs::remove_dir_all(&self.path).map_err(|error| self.left(&error))
    }

    fn left(&self, error: &io::Error) -> crate::error::Failure {
        failed(format_args!("cannot remove {}: {error}; remove it", self.path.display()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.removed
            && let Err(error) = std::fs::remove_dir_all(&self.path)
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
        let scratch = Scratch::new(dir.path()).unwrap();
        std::fs::create_dir(scratch.path().join("sub")).unwrap();
        std::fs::write(scratch.path().join("sub/file"), "x").unwrap();
        drop(scratch);
        Scratch::new(dir.path()).unwrap().remove().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(Scratch::new(&dir.path().join("none")).is_err());
    }
}
