//! One file, accessed in chunks of 8 KiB as bonnie++ does.
//!
//! bonnie++ itself reports no figure for a case that takes less than half a second.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::job;

/// Bytes of one call.
pub const CHUNK_BYTES: usize = 8192;
/// Number of seeks; bonnie++ makes as many.
pub const SEEKS: u32 = 8192;
/// One of this many chunks read by [`Chunks::seek`] is changed and written back.
const READS_PER_WRITE: u32 = 10;

/// A file of this many bytes in the directory.
#[derive(Debug, Clone, Copy)]
pub struct Chunks(pub u64);

impl Chunks {
    /// The path of the file.
    pub fn path(root: &Path) -> PathBuf {
        root.join("chunks")
    }

    fn offsets(self) -> impl Iterator<Item = u64> {
        (0..self.0).step_by(CHUNK_BYTES)
    }

    /// Creates the file and writes all its chunks.
    ///
    /// # Errors
    /// Errors of the file system; when the user interrupts.
    pub fn write(self, root: &Path) -> Result<()> {
        let file = File::create_new(Self::path(root))?;
        let chunk = [b'x'; CHUNK_BYTES];
        for at in self.offsets() {
            file.write_all_at(&chunk, at)?;
        }
        job::check()
    }

    /// Reads each chunk, changes a byte, and writes it back.
    ///
    /// # Errors
    /// Errors of the file system; when the user interrupts.
    pub fn rewrite(self, root: &Path) -> Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(Self::path(root))?;
        let mut chunk = [0; CHUNK_BYTES];
        for at in self.offsets() {
            file.read_exact_at(&mut chunk, at)?;
            chunk[0] = chunk[0].wrapping_add(1);
            file.write_all_at(&chunk, at)?;
        }
        job::check()
    }

    /// Reads the file chunk by chunk.
    ///
    /// # Errors
    /// Errors of the file system; when the user interrupts.
    pub fn read(self, root: &Path) -> Result<()> {
        let file = File::open(Self::path(root))?;
        let mut chunk = [0; CHUNK_BYTES];
        for at in self.offsets() {
            file.read_exact_at(&mut chunk, at)?;
        }
        job::check()
    }

    /// Reads chunks at pseudo-random offsets, and writes one of ten back changed.
    ///
    /// # Errors
    /// Errors of the file system; when the user interrupts.
    pub fn seek(self, root: &Path) -> Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(Self::path(root))?;
        let mut chunk = [0; CHUNK_BYTES];
        let mut state = 1_u64;
        for n in 0..SEEKS {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) % (self.0 / CHUNK_BYTES as u64) * CHUNK_BYTES as u64;
            file.read_exact_at(&mut chunk, at)?;
            if n % READS_PER_WRITE == 0 {
                chunk[0] = chunk[0].wrapping_add(1);
                file.write_all_at(&chunk, at)?;
            }
        }
        job::check()
    }
}
