//! Metadata operations on many files in one directory.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::job;

/// This many small files in the directory `many`.
#[derive(Debug, Clone, Copy)]
pub struct Names(pub u32);

impl Names {
    fn path(root: &Path, at: u32) -> PathBuf {
        root.join("many").join(format!("file{at:06}"))
    }

    /// Each number once, in a non-sequential order.
    fn shuffled(self) -> impl Iterator<Item = u32> {
        // A step that is coprime to the count visits every number.
        let step = (self.0 / 2 + 1..).find(|step| gcd(*step, self.0) == 1).unwrap_or(1);
        (0..u64::from(self.0)).map(move |at| (at * u64::from(step) % u64::from(self.0)) as u32)
    }

    /// Creates the files, of 1 KiB each.
    ///
    /// # Errors
    /// Errors of the file system; when the user interrupts.
    pub fn create(self, root: &Path) -> Result<()> {
        self.make(root, &[b'x'; 1024])
    }

    /// Creates the files, empty.
    ///
    /// # Errors
    /// Errors of the file system; when the user interrupts.
    pub fn create_empty(self, root: &Path) -> Result<()> {
        self.make(root, b"")
    }

    fn make(self, root: &Path, bytes: &[u8]) -> Result<()> {
        fs::create_dir(root.join("many"))?;
        for at in 0..self.0 {
            job::check()?;
            let mut file = File::create_new(Self::path(root, at))?;
            if !bytes.is_empty() {
                file.write_all(bytes)?;
            }
        }
        Ok(())
    }

    /// Reads the attributes of each file, in an order unlike that of creation.
    ///
    /// # Errors
    /// Errors of the file system; when the user interrupts.
    pub fn stat(self, root: &Path) -> Result<()> {
        for at in self.shuffled() {
            job::check()?;
            fs::symlink_metadata(Self::path(root, at))?;
        }
        Ok(())
    }

    /// Removes the files and their directory.
    ///
    /// # Errors
    /// Errors of the file system; when the user interrupts.
    pub fn unlink(self, root: &Path) -> Result<()> {
        for at in 0..self.0 {
            job::check()?;
            fs::remove_file(Self::path(root, at))?;
        }
        Ok(fs::remove_dir(root.join("many"))?)
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_once() {
        let mut seen: Vec<u32> = Names(1000).shuffled().collect();
        assert_ne!(seen[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..1000));
    }
}
