//! Operations on names and attributes of the files of one directory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{Recorder, Sample, Slot, drop_caches};
use crate::bench::case::{Cache, Metadata};

/// A directory of empty files, made anew in each round.
#[derive(Debug)]
pub struct Files {
    dir: PathBuf,
    max: u32,
    /// Files that exist.
    count: u32,
    /// Files with the names of after a rename.
    renamed: u32,
}

impl Files {
    /// Creates the directory for up to `max` files.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn new(parent: &Path, max: u32) -> io::Result<Self> {
        let dir = parent.join("files");
        fs::create_dir(&dir)?;
        Ok(Files { dir, max, count: 0, renamed: 0 })
    }

    fn path(&self, number: u32) -> PathBuf {
        let prefix = if number < self.renamed { "renamed" } else { "file" };
        self.dir.join(format!("{prefix}.{number:07}"))
    }

    /// Creates files without measuring them, for cases that need some.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn prepare(&mut self, slot: &Slot<'_>) -> io::Result<()> {
        while self.count < self.max && !slot.interrupt.is_set() {
            File::create_new(self.path(self.count))?;
            self.count += 1;
        }
        Ok(())
    }

    /// Removes the directory.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(&self.dir)
    }
}

/// Runs a step. Creation, rename and removal pass over the files once and end with the slot; the others repeat until it ends.
///
/// # Errors
/// Returns the errors of the file system.
pub fn run(files: &mut Files, work: Metadata, slot: &Slot<'_>) -> io::Result<Sample> {
    let is_cold = matches!(work, Metadata::Stat(Cache::Cold) | Metadata::Readdir(Cache::Cold));
    match work {
        Metadata::Create => {}
        _ => files.prepare(slot)?,
    }
    // The paths are made before the clock runs.
    let paths: Vec<PathBuf> = (0..files.max).map(|number| files.path(number)).collect();
    if is_cold {
        drop_caches()?;
    } else if let Metadata::Stat(_) | Metadata::Open | Metadata::Readdir(_) = work {
        for entry in fs::read_dir(&files.dir)? {
            entry?.metadata()?;
        }
    }
    let mut recorder = Recorder::new(slot);
    match work {
        Metadata::Create => {
            for path in &paths {
                File::create_new(path)?;
                files.count += 1;
                if !recorder.record(1) {
                    break;
                }
            }
        }
        Metadata::Stat(cache) => {
            repeat(&paths, cache == Cache::Warm, &mut recorder, |path| fs::metadata(path).map(drop))?
        }
        Metadata::Open => repeat(&paths, true, &mut recorder, |path| File::open(path).map(drop))?,
        Metadata::Readdir(cache) => loop {
            let mut entries = 0;
            for entry in fs::read_dir(&files.dir)? {
                entry?;
                entries += 1;
            }
            if !recorder.record(entries) || cache == Cache::Cold {
                break;
            }
        },
        Metadata::Rename => {
            for (number, path) in (0..).zip(&paths) {
                let new = files.dir.join(format!("renamed.{number:07}"));
                fs::rename(path, new)?;
                files.renamed = number + 1;
                if !recorder.record(1) {
                    break;
                }
            }
        }
        Metadata::Unlink => {
            for path in &paths {
                fs::remove_file(path)?;
                if !recorder.record(1) {
                    break;
                }
            }
        }
    }
    Ok(recorder.finish())
}

/// Passes over the paths, repeatedly if `again`, until the slot ends.
fn repeat(
    paths: &[PathBuf],
    again: bool,
    recorder: &mut Recorder<'_>,
    work: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        for path in paths {
            work(path)?;
            if !recorder.record(1) {
                return Ok(());
            }
        }
        if !again {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::interrupt::Interrupt;
    use std::time::Duration;

    #[test]
    fn all_operations_pass_over_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let slot = Slot { length: Duration::from_millis(5), interrupt: &Interrupt::default() };
        let mut files = Files::new(dir.path(), 12).unwrap();
        let warm = Cache::Warm;
        for work in [
            Metadata::Create,
            Metadata::Stat(warm),
            Metadata::Open,
            Metadata::Readdir(warm),
            Metadata::Rename,
            Metadata::Unlink,
        ] {
            assert!(run(&mut files, work, &slot).unwrap().rate > 0.0, "{work:?}");
        }
        files.remove().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
