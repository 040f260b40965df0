//! What e2fsck says.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use shunt_ext4::Filesystem;
use tempfile::TempDir;

use crate::{Guarded, Input, Mutant, write};

/// e2fsck, and a place for images.
pub struct Checker(TempDir);

/// e2fsck 1.47.0 says so of any tree of two levels with room behind the end of its file, the kernel's too.
const MISTAKEN: &str = "end of extent exceeds allowed value";

/// What writing did to an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It cannot be written, or was not clean before.
    NotAsked,
    /// It was clean, and still is; so many operations worked.
    Clean(usize),
    /// It was clean. This is what e2fsck says now.
    Spoiled(String),
}

impl Checker {
    /// Images lie in memory, where there is such a place.
    ///
    /// # Panics
    /// Where there is no place at all.
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        Self(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a place for images"))
    }

    /// Whether there is an e2fsck.
    pub fn is_there() -> bool {
        Command::new("e2fsck").arg("-V").output().is_ok()
    }

    /// What e2fsck finds wrong; it changes nothing.
    ///
    /// # Errors
    /// What it printed.
    ///
    /// # Panics
    /// Where it cannot be run.
    pub fn check(&self, image: &[u8]) -> Result<(), String> {
        let path = self.0.path().join("image");
        fs::write(&path, image).expect("room for an image");
        let output = Command::new("e2fsck").arg("-fn").arg(path).output().expect("e2fsck");
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stdout).into_owned()),
        }
    }

    /// Writes to a mutant as the input says. Whether it is clean is asked once its journal is applied.
    ///
    /// # Panics
    /// As [`survive`](crate::survive).
    pub fn writing(&self, mutant: &Mutant, input: Input<'_>) -> Verdict {
        let device = Arc::new(Guarded::new(mutant));
        let closed = Filesystem::open_writable(device.clone()).and_then(Filesystem::close);
        if closed.is_err() || self.check(&device.bytes()).is_err() {
            return Verdict::NotAsked;
        }
        let device = Arc::new(Guarded::new(mutant));
        let worked = write(&device, input);
        match self.check(&device.bytes()) {
            Ok(()) => Verdict::Clean(worked),
            Err(said) if said.contains(MISTAKEN) => Verdict::NotAsked,
            Err(said) => Verdict::Spoiled(said),
        }
    }
}
