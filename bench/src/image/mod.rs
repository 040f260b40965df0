//! An ext4 image in memory, served by the kernel through a loop device, by Debian's `fuse2fs`, or by Shunt.

mod implementation;
mod names;
mod serving;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, fallocate};

pub use implementation::Implementation;
pub use names::Names;
use serving::Serving;

use crate::context::{Bench, Medium};
use crate::model::Sample;
use crate::{job, process};

/// Makes an image of `size` bytes; mke2fs writes the inode tables and the journal at once instead of lazily.
///
/// # Errors
/// When a tool is missing.
pub fn blank(path: &Path, size: u64) -> Result<()> {
    make_file_system(path, size, true)
}

fn make_file_system(path: &Path, size: u64, eager: bool) -> Result<()> {
    File::options().write(true).create(true).truncate(false).open(path)?.set_len(size)?;
    // Eager: no kernel thread initialises the rest later, while others are measured.
    let eager = if eager { "nodiscard,lazy_itable_init=0,lazy_journal_init=0" } else { "nodiscard" };
    let features = "orphan_file,metadata_csum_seed";
    job::run(Command::new("mkfs.ext4").args(["-q", "-F", "-O", features, "-E", eager]).arg(path))?;
    Ok(())
}

/// An image file and its mount; unmounted and removed on drop.
#[derive(Debug)]
pub struct Image<'a> {
    bench: &'a Bench,
    implementation: Implementation,
    file: PathBuf,
    /// The mount point.
    pub root: PathBuf,
    serving: Option<Serving>,
    /// The highest peak memory of any daemon of this image, in bytes.
    peak: u64,
}

impl<'a> Image<'a> {
    /// Makes a file system of `size` bytes, all of them allocated, and mounts it.
    ///
    /// # Errors
    /// When memory or a tool is missing, or the implementation does not mount.
    pub fn make(bench: &'a Bench, implementation: Implementation, size: u64) -> Result<Self> {
        let mut image = Self::blank(bench, implementation, size, true)?;
        image.mount()?;
        Ok(image)
    }

    /// Makes a file system in a sparse file, without mounting it.
    ///
    /// # Errors
    /// When a tool is missing.
    pub fn sparse(bench: &'a Bench, implementation: Implementation, size: u64) -> Result<Self> {
        Self::blank(bench, implementation, size, false)
    }

    fn blank(bench: &'a Bench, implementation: Implementation, size: u64, allocated: bool) -> Result<Self> {
        let directory = bench.source_dir(Medium::Tmpfs);
        fs::create_dir_all(&directory)?;
        let path = directory.join(format!("{implementation}.img"));
        let root = bench.mount_point_named(&format!("{implementation}-image"));
        let image = Self { bench, implementation, file: path, root, serving: None, peak: 0 };
        if allocated {
            let file = File::create(&image.file)?;
            fallocate(&file, FallocateFlags::empty(), 0, size).context("allocate memory for the image")?;
        }
        make_file_system(&image.file, size, allocated)?;
        Ok(image)
    }

    /// Mounts the image and returns how long that took.
    ///
    /// # Errors
    /// When the implementation does not mount it.
    pub fn mount(&mut self) -> Result<Sample> {
        let start = Instant::now();
        self.serving = Some(Serving::start(self.bench, self.implementation, &self.file, &self.root)?);
        let seconds = start.elapsed().as_secs_f64();
        Ok(Sample { value: seconds, seconds, requests: None })
    }

    /// Unmounts the image. All changes are in the image file on return.
    ///
    /// # Errors
    /// When the mount stays busy.
    pub fn unmount(&mut self) -> Result<()> {
        self.note_memory();
        self.serving
            .take()
            .map_or(Ok(()), Serving::end)
            .with_context(|| format!("unmount {}", self.implementation))
    }

    /// Unmounts the image, drops every cache, and mounts it again.
    ///
    /// # Errors
    /// The errors of [`mount`](Self::mount) and [`unmount`](Self::unmount).
    pub fn remount_cold(&mut self) -> Result<()> {
        self.unmount()?;
        process::drop_caches()?;
        self.mount()?;
        Ok(())
    }

    fn note_memory(&mut self) {
        let peak = self.serving.as_ref().and_then(Serving::pid).map(process::peak);
        self.peak = self.peak.max(peak.and_then(Result::ok).unwrap_or(0));
    }

    /// The peak memory of the daemons of this image so far, in bytes; none for the kernel.
    pub fn peak_memory(&mut self) -> Option<u64> {
        self.note_memory();
        Some(self.peak).filter(|peak| *peak > 0)
    }

    /// Requests answered since the last mount; none for the kernel.
    pub fn requests(&self) -> Option<u64> {
        self.serving.as_ref()?.requests()
    }

    /// Times `work` and counts its requests.
    ///
    /// # Errors
    /// The errors of `work`.
    pub fn time(&self, work: impl FnOnce(&Path) -> Result<()>) -> Result<Sample> {
        let before = self.requests();
        let start = Instant::now();
        work(&self.root)?;
        let seconds = start.elapsed().as_secs_f64();
        let requests = before.zip(self.requests()).map(|(before, after)| after.saturating_sub(before));
        Ok(Sample { value: seconds, seconds, requests })
    }
}

impl Drop for Image<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            crate::progress::say(format_args!("cannot clean up: {error:#}"));
        }
        if let Err(error) = fs::remove_file(&self.file) {
            crate::progress::say(format_args!("cannot clean up {}: {error}", self.file.display()));
        }
    }
}
