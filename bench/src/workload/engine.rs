//! The ext4 engine without a mount: files created and written by one thread, and by two threads in two directories.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use anyhow::{Context, Result};
use shunt_ext4::{Device, Filesystem, NewInode, NewInodeKind, ROOT};

use super::Workload;
use crate::context::{Bench, Medium};
use crate::image::blank;
use crate::job;
use crate::model::{Row, Sample, Unit};

pub const WORKLOAD: Workload = Workload {
    name: "ext4-engine",
    about: "ext4 engine without a mount: one thread, and two threads in two directories",
    run,
};

const ONE_THREAD: &str = "one thread";
const TWO_THREADS: &str = "two threads";
/// The upper bound for two threads on this machine: two engines that share nothing but memory.
const TWO_ENGINES: &str = "two engines";

const ROUNDS: u32 = 9;

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let files: u32 = bench.size(5000, 500);
    let mut row = Row::new(WORKLOAD.name, "create-write", Unit::PerSecond);
    let engines = [Engine::new(bench)?, Engine::new(bench)?];
    let [first, second] = &engines;
    // A warm-up that allocates the memory that later rounds reuse.
    for engine in &engines {
        engine.work(&engine.directories, files)?;
    }
    for round in 0..bench.rounds(ROUNDS) {
        job::check()?;
        let mut cases = [
            (ONE_THREAD, vec![(first, &first.directories[..1])]),
            (TWO_THREADS, vec![(first, &first.directories[..])]),
            (TWO_ENGINES, vec![(first, &first.directories[..1]), (second, &second.directories[..1])]),
        ];
        // The case that follows the sync is a different one in each round.
        cases.rotate_left(round as usize % 3);
        for (case, work) in cases {
            let seconds = run_all(&work, files)?;
            let threads: usize = work.iter().map(|(_, directories)| directories.len()).sum();
            let value = threads as f64 * f64::from(files) / seconds;
            row.record(case, Ok(Sample { value, seconds, requests: None }));
        }
    }
    for case in [ONE_THREAD, TWO_THREADS, TWO_ENGINES] {
        row.series_mut(case);
    }
    row.series.sort_by_key(|series| {
        [ONE_THREAD, TWO_THREADS, TWO_ENGINES].iter().position(|case| *case == series.peer)
    });
    row.finish(&bench.round_trips);
    row.at_least(TWO_THREADS, 1.6, ONE_THREAD);
    if let Some(times) = row.ratio(TWO_ENGINES, ONE_THREAD) {
        row.notes.push(format!(
            "upper bound: two independent engines reach {times:.2} times the rate of one thread"
        ));
    }
    Ok(vec![row])
}

/// Seconds until all directories of all engines are filled, with a thread for each.
fn run_all(work: &[(&Engine, &[u32])], files: u32) -> Result<f64> {
    let took = std::thread::scope(|scope| {
        let threads: Vec<_> = work
            .iter()
            .map(|(engine, directories)| scope.spawn(move || engine.work(directories, files)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<Vec<_>>>()
    })?;
    Ok(took.into_iter().fold(0.0, f64::max))
}

/// A file system in memory, with two directories.
struct Engine {
    fs: Filesystem,
    directories: [u32; 2],
}

impl Engine {
    fn new(bench: &Bench) -> Result<Self> {
        let path = bench.source_dir(Medium::Tmpfs).join("engine.img");
        blank(&path, 256 << 20)?;
        let device = SegmentedImage::new(&std::fs::read(&path)?);
        std::fs::remove_file(&path)?;
        let fs = Filesystem::open_writable(Arc::new(device)).context("open the image")?;
        let new = NewInode { permissions: 0o755, ..NewInode::default() };
        let directory =
            |name| Ok::<_, shunt_ext4::Error>(fs.create(ROOT, name, NewInodeKind::Directory, &new)?.number);
        let directories = [directory(b"a")?, directory(b"b")?];
        Ok(Self { fs, directories })
    }

    /// Seconds until each of the directories is filled, by a thread of its own. The directories are emptied again afterwards.
    fn work(&self, directories: &[u32], files: u32) -> Result<f64> {
        let start = Instant::now();
        self.each(directories, |directory| self.fill(directory, files))?;
        let took = start.elapsed().as_secs_f64();
        self.each(directories, |directory| self.empty(directory, files))?;
        self.fs.sync()?;
        Ok(took)
    }

    fn each(
        &self,
        directories: &[u32],
        work: impl Fn(u32) -> shunt_ext4::Result<()> + Sync,
    ) -> shunt_ext4::Result<()> {
        std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = directories.iter().map(|&at| scope.spawn(move || work(at))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })
    }

    fn fill(&self, directory: u32, files: u32) -> shunt_ext4::Result<()> {
        let (new, data) = (NewInode { permissions: 0o644, ..NewInode::default() }, vec![7; 4 << 10]);
        for n in 0..files {
            let file = self.fs.create(directory, name(n).as_bytes(), NewInodeKind::Regular, &new)?;
            self.fs.write(file.number, 0, &data)?;
        }
        Ok(())
    }

    fn empty(&self, directory: u32, files: u32) -> shunt_ext4::Result<()> {
        for n in 0..files {
            let file = self.fs.unlink(directory, name(n).as_bytes())?;
            self.fs.evict_inode(file.number)?;
        }
        Ok(())
    }
}

fn name(n: u32) -> String {
    format!("file {n}")
}

/// The image in memory, in segments with a lock each, so that writers contend in the engine and not on the kernel's lock of the
/// image file.
struct SegmentedImage(Vec<RwLock<Vec<u8>>>);

const SEGMENT_BYTES: u64 = 64 << 10;

impl SegmentedImage {
    fn new(image: &[u8]) -> Self {
        Self(image.chunks(SEGMENT_BYTES as usize).map(|segment| RwLock::new(segment.to_vec())).collect())
    }

    /// Calls `each` with every segment that a range overlaps: the segment, the offset in it, the offset in the range, and the
    /// length.
    fn for_each_segment(
        &self,
        offset: u64,
        length: usize,
        mut each: impl FnMut(&RwLock<Vec<u8>>, usize, usize, usize),
    ) {
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let within = (at % SEGMENT_BYTES) as usize;
            let count = (SEGMENT_BYTES as usize - within).min(length - done);
            each(&self.0[(at / SEGMENT_BYTES) as usize], within, done, count);
            done += count;
        }
    }
}

impl Device for SegmentedImage {
    fn size(&self) -> u64 {
        self.0.len() as u64 * SEGMENT_BYTES
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.for_each_segment(offset, buffer.len(), |segment, within, done, count| {
            let segment = segment.read().unwrap_or_else(PoisonError::into_inner);
            buffer[done..done + count].copy_from_slice(&segment[within..within + count]);
        });
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.for_each_segment(offset, data.len(), |segment, within, done, count| {
            let mut segment = segment.write().unwrap_or_else(PoisonError::into_inner);
            segment[within..within + count].copy_from_slice(&data[done..done + count]);
        });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
