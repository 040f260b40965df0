//! Consistency checks with e2fsck.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use shunt_ext4::Filesystem;
use tempfile::TempDir;

use crate::{Guarded, Input, Mutant, write};

/// Runs e2fsck on images in a temporary directory.
pub struct Checker(TempDir);

/// Finding of e2fsck 1.47.0 for any tree of two levels with preallocated blocks beyond the end of the file, including those of
/// the kernel.
const MISTAKEN: &str = "end of extent exceeds allowed value";

/// Result of writing to an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The image cannot be written, or was not clean before.
    NotAsked,
    /// The image was clean and still is; carries the number of successful operations.
    Clean(usize),
    /// The image was clean. Carries the output of e2fsck afterwards.
    Spoiled(String),
}

impl Checker {
    /// Creates a checker with a directory in memory if possible.
    ///
    /// # Panics
    /// If no temporary directory can be created.
    #[expect(clippy::new_without_default, reason = "new creates a directory")]
    pub fn new() -> Self {
        Self(
            tempfile::tempdir_in("/dev/shm")
                .or_else(|_| tempfile::tempdir())
                .expect("create a directory for images"),
        )
    }

    /// Reports whether e2fsck is installed.
    pub fn is_there() -> bool {
        Command::new("e2fsck").arg("-V").output().is_ok()
    }

    /// Checks an image with e2fsck, without changing it.
    ///
    /// # Errors
    /// The output of e2fsck.
    ///
    /// # Panics
    /// If e2fsck cannot be run.
    pub fn check(&self, image: &[u8]) -> Result<(), String> {
        let path = self.0.path().join("image");
        fs::write(&path, image).expect("write an image");
        let output = Command::new("e2fsck").arg("-fn").arg(path).output().expect("e2fsck");
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stdout).into_owned()),
        }
    }

    /// Writes to a mutant as the input specifies, and checks it. The mutant counts as clean if it is so after journal recovery.
    ///
    /// # Panics
    /// Under the conditions of [`survive`](crate::survive).
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
            Err(output) if output.contains(MISTAKEN) => Verdict::NotAsked,
            Err(output) => Verdict::Spoiled(output),
        }
    }
}
