//! Reading and writing one file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

use super::buffer::Buffer;
use super::{Recorder, Sample, Slot};
use crate::bench::case::{Access, Cache};

/// Block size of the initial content, in bytes.
const FILL_BYTES: u64 = 1 << 20;

/// The file of a side, with all its blocks allocated.
#[derive(Debug)]
pub struct DataFile {
    path: PathBuf,
    /// The file in the source that a mirror shows as this one.
    below: Option<PathBuf>,
    size: u64,
}

/// The kind of access of a step.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    pub access: Access,
    pub random: bool,
    pub block: u64,
    pub direct: bool,
    pub cache: Option<Cache>,
}

impl DataFile {
    /// Creates the file and fills it. Returns early, with a shorter file, after a signal. `below` is the directory that a mirror shows
    /// as `dir`.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn create(dir: &Path, below: Option<&Path>, size: u64, slot: &Slot<'_>) -> io::Result<Self> {
        let path = dir.join("data");
        let file = File::create_new(&path)?;
        let buffer = Buffer::new(FILL_BYTES.min(size) as usize);
        let mut at = 0;
        while at < size && !slot.interrupt.is_set() {
            let part = &buffer.get()[..(size - at).min(FILL_BYTES) as usize];
            file.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        file.sync_all()?;
        Ok(DataFile { path, below: below.map(|below| below.join("data")), size })
    }

    /// Runs a step. Sequential access begins at the start of the file and wraps around; buffered writes end with fdatasync, whose
    /// time counts.
    ///
    /// # Errors
    /// Returns the errors of the file system; EINVAL where it does not support O_DIRECT.
    pub fn run(&self, mode: Mode, slot: &Slot<'_>) -> io::Result<Sample> {
        let write = mode.access == Access::Write;
        let mut options = OpenOptions::new();
        options.read(!write).write(write);
        if mode.direct {
            options.custom_flags(libc::O_DIRECT);
        }
        let file = options.open(&self.path)?;
        let blocks = (self.size / mode.block).max(1);
        let mut buffer = Buffer::new(mode.block as usize);
        match mode.cache {
            Some(Cache::Cold) => self.evict(&file)?,
            Some(Cache::Warm) => Self::warm(&file, &mut buffer, blocks, slot)?,
            None => {}
        }
        let mut recorder = Recorder::new(slot);
        let mut next = 0;
        loop {
            let block = if mode.random { rand::random_range(0..blocks) } else { next % blocks };
            // A cold read of a block that this step has read is not cold.
            if mode.cache == Some(Cache::Cold) && next == blocks {
                break;
            }
            next += 1;
            let at = block * mode.block;
            let done = match write {
                true => file.write_at(buffer.get(), at)?,
                false => file.read_at(buffer.get_mut(), at)?,
            };
            if done == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if !recorder.record(done as u64) {
                break;
            }
        }
        if write {
            file.sync_data()?;
        }
        Ok(recorder.finish())
    }

    /// Evicts the file from the page cache, which needs clean pages, and the file that a mirror reads for it.
    fn evict(&self, file: &File) -> io::Result<()> {
        file.sync_all()?;
        fadvise(file, 0, None, Advice::DontNeed)?;
        if let Some(below) = &self.below {
            let below = File::open(below)?;
            below.sync_all()?;
            fadvise(below, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    }

    /// Reads the file once, or as much of it as fits into the slot.
    fn warm(file: &File, buffer: &mut Buffer, blocks: u64, slot: &Slot<'_>) -> io::Result<()> {
        for block in 0..blocks {
            let at = block * buffer.get().len() as u64;
            file.read_at(buffer.get_mut(), at)?;
            if slot.interrupt.is_set() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::interrupt::Interrupt;
    use std::time::Duration;

    #[test]
    fn every_mode_transfers_data() {
        let dir = tempfile::tempdir().unwrap();
        let slot = Slot { length: Duration::from_millis(2), interrupt: &Interrupt::default() };
        let file = DataFile::create(dir.path(), None, 1 << 17, &slot).unwrap();
        for access in [Access::Read, Access::Write] {
            for (random, cache) in [(true, None), (false, Some(Cache::Cold)), (false, Some(Cache::Warm))] {
                let mode = Mode { access, random, block: 4096, direct: false, cache };
                if access == Access::Write && cache == Some(Cache::Warm) {
                    continue;
                }
                let sample = file.run(mode, &slot).unwrap();
                assert!(sample.rate > 0.0 && sample.latency_us[0] <= sample.latency_us[2], "{mode:?}");
            }
        }
        assert_eq!(std::fs::metadata(dir.path().join("data")).unwrap().len(), 1 << 17);
    }
}
