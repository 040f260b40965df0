//! A volume on one node beside a plain directory of the same disk: metadata operations, and data of a cached file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use super::Workload;
use crate::bonnie::{self, Figure};
use crate::cgroup::MemoryGroup;
use crate::chunks::{self, Chunks};
use crate::context::{Bench, Medium};
use crate::fio::{self, Job};
use crate::image::Names;
use crate::job;
use crate::model::{Row, Sample, Unit};
use crate::mounted;
use crate::peer::{Peer, UringSwitch};
use crate::peer_mount::{MountSetup, PeerMount};
use crate::progress::say;
use crate::requests::Counter;

pub const WORKLOAD: Workload = Workload {
    name: "volume",
    about: "volume of one node: the bonnie++ steps on 10,240 files and on one, and fio on a cached file compared with a mirror",
    run,
};

const NATIVE: &str = "native";
const SHUNT: &str = "shunt";
const MIRROR: &str = "mirror";
/// The volume, with requests over io_uring.
const URING: &str = "shunt-uring";

/// Metadata cases, on empty files as bonnie++ makes them or on files of 1 KiB: the step and the smallest accepted fraction of the
/// native rate.
const METADATA_CASES: [(&str, MetadataStep, Option<f64>); 6] = [
    ("create", Names::create_empty, Some(0.30)),
    ("stat", Names::stat, Some(0.50)),
    ("delete", Names::unlink, Some(0.30)),
    // The kernel requests size and times of a file after a write.
    ("create-1k", Names::create, None),
    ("stat-1k", Names::stat, None),
    ("delete-1k", Names::unlink, None),
];
/// Data cases, a chunk at a time on a file in the page cache.
const CHUNK_CASES: [(&str, ChunkStep); 4] = [
    ("write-8k", Chunks::write),
    ("rewrite-8k", Chunks::rewrite),
    ("read-8k", Chunks::read),
    ("seek-8k", Chunks::seek),
];
/// The smallest accepted fraction of the native rate of a chunk case.
const MIN_CHUNK_RATIO: f64 = 0.90;
/// The memory limit of bonnie++, whose file is eight times as large.
const MAX_BONNIE_MEMORY_BYTES: u64 = 128 << 20;
const DATA_CASES: [(&str, &str, u32); 4] = [
    ("read-1m", "read", 1 << 20),
    ("write-1m", "write", 1 << 20),
    ("randread-4k", "randread", 4096),
    ("randwrite-4k", "randwrite", 4096),
];
/// The smallest accepted fraction of a mirror's rate: both use kernel passthrough.
const MIN_DATA_RATIO: f64 = 0.95;

/// A mounted volume; unmounted and removed with all its files on drop.
struct MountedVolume<'a> {
    program: &'a Path,
    home: PathBuf,
    at: PathBuf,
}

impl<'a> MountedVolume<'a> {
    fn new(bench: &'a Bench, transport: &str) -> Result<Self> {
        let program =
            bench.programs.shunt.as_deref().context("no shunt binary; give its path with --shunt")?;
        let home = bench.source_dir(Medium::Disk).join("volume");
        let mounted = Self { program, at: home.join("mnt"), home };
        fs::create_dir_all(&mounted.at)?;
        let data = |command: &mut Command| {
            command.env("XDG_DATA_HOME", &mounted.home);
            job::run(command)
        };
        data(Command::new(program).args(["volume", "create", "bench"]))?;
        let mut command = Command::new(program);
        command.args(["volume", "mount", "--daemon", "--transport", transport, "--node", "bench", "--cache"]);
        command.arg(mounted.home.join("cache")).arg("bench").arg(&mounted.at);
        data(&mut command)?;
        Ok(mounted)
    }
}

impl Drop for MountedVolume<'_> {
    fn drop(&mut self) {
        let _ = Command::new(self.program).arg("umount").arg(&self.at).output();
        if fs::remove_dir(&self.at).is_ok() {
            let _ = fs::remove_dir_all(&self.home);
        }
    }
}

type MetadataStep = fn(Names, &Path) -> Result<()>;
type ChunkStep = fn(Chunks, &Path) -> Result<()>;

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = METADATA_CASES
        .iter()
        .map(|(case, ..)| Row::new(WORKLOAD.name, case, Unit::PerSecond))
        .chain(CHUNK_CASES.iter().map(|(case, _)| Row::new(WORKLOAD.name, case, unit_of(case))))
        .chain(bonnie::CASES.iter().map(|(case, _)| Row::new(WORKLOAD.name, case, unit_of(case))))
        .chain(DATA_CASES.iter().map(|(case, ..)| Row::new(WORKLOAD.name, case, Unit::MebibytesPerSecond)))
        .collect();
    for round in 0..bench.rounds(3) {
        say(format_args!("{}: round {}", WORKLOAD.name, round + 1));
        let native = bench.source_dir(Medium::Disk).join("native");
        fs::create_dir_all(&native)?;
        let done = measure(bench, &native, NATIVE, &mut rows);
        fs::remove_dir_all(&native)?;
        done?;
        let nothing = MountSetup { medium: Medium::Disk, descriptors: None, prepare: &|_| Ok(()) };
        let mirror = PeerMount::set(bench, Peer::SHUNT, nothing)?;
        measure_names(bench, &mirror.root, MIRROR, &mut rows)?;
        measure_chunks(bench, &mirror.root, MIRROR, &mut rows)?;
        measure_data(bench, &mirror.root, MIRROR, &mut rows)?;
        drop(mirror);
        let mounted = MountedVolume::new(bench, "auto")?;
        measure(bench, &mounted.at, SHUNT, &mut rows)?;
        drop(mounted);
        if let Ok(_switch) = UringSwitch::on() {
            let mounted = MountedVolume::new(bench, "uring")?;
            measure_names(bench, &mounted.at, URING, &mut rows)?;
        }
    }
    for row in &mut rows {
        row.finish(&bench.round_trips);
        if DATA_CASES.iter().any(|(case, ..)| row.case == *case) {
            row.at_least(SHUNT, MIN_DATA_RATIO, MIRROR);
        }
        let names = METADATA_CASES.iter().map(|(case, _, min_ratio)| (*case, *min_ratio));
        let file =
            CHUNK_CASES.iter().map(|(case, _)| *case).chain(bonnie::CASES.iter().map(|(case, _)| *case));
        let file = file.map(|case| (case, Some(MIN_CHUNK_RATIO)));
        if let Some((_, Some(min_ratio))) = names.chain(file).find(|(case, _)| row.case == *case) {
            row.at_least(SHUNT, min_ratio, NATIVE);
        }
    }
    Ok(rows)
}

fn unit_of(case: &str) -> Unit {
    if case.contains("seek") { Unit::PerSecond } else { Unit::MebibytesPerSecond }
}

fn record(rows: &mut [Row], case: &str, peer: &str, sample: Sample) {
    if let Some(row) = rows.iter_mut().find(|row| row.case == case) {
        row.record(peer, Ok(sample));
    }
}

/// Adds a note to a row, once.
fn note(rows: &mut [Row], case: &str, text: &str) {
    if let Some(row) =
        rows.iter_mut().find(|row| row.case == case && !row.notes.iter().any(|one| one == text))
    {
        row.notes.push(text.into());
    }
}

fn measure(bench: &Bench, root: &Path, peer: &str, rows: &mut [Row]) -> Result<()> {
    // bonnie++ runs first, as if it ran alone: no upload or removal of earlier files is under way.
    measure_bonnie(bench, root, peer, rows)?;
    measure_names(bench, root, peer, rows)?;
    measure_chunks(bench, root, peer, rows)?;
    measure_data(bench, root, peer, rows)
}

fn measure_bonnie(bench: &Bench, root: &Path, peer: &str, rows: &mut [Row]) -> Result<()> {
    let group = MemoryGroup::new(MAX_BONNIE_MEMORY_BYTES)?;
    let figures = bonnie::run(
        root,
        bench.size(MAX_BONNIE_MEMORY_BYTES * 8, MAX_BONNIE_MEMORY_BYTES * 2) >> 20,
        &group,
    )?;
    for ((case, _), figure) in bonnie::CASES.into_iter().zip(figures) {
        match figure {
            Figure::Exact(value) => record(rows, case, peer, Sample { value, seconds: 0.0, requests: None }),
            // A lower bound suffices for comparison with the exact figure of the plain directory.
            Figure::AtLeast(value) if peer == SHUNT => {
                record(rows, case, peer, Sample { value, seconds: 0.0, requests: None });
                note(rows, case, "too fast for bonnie++ to measure: the figure is a lower bound");
            }
            Figure::AtLeast(_) => {}
        }
    }
    Ok(())
}

fn measure_chunks(bench: &Bench, root: &Path, peer: &str, rows: &mut [Row]) -> Result<()> {
    let chunks = Chunks(bench.size(1 << 30, 64 << 20));
    for (case, step) in CHUNK_CASES {
        let start = Instant::now();
        step(chunks, root)?;
        let seconds = start.elapsed().as_secs_f64();
        let done = match unit_of(case) {
            Unit::PerSecond => f64::from(chunks::SEEKS),
            _ => chunks.0 as f64 / f64::from(1 << 20),
        };
        record(rows, case, peer, Sample { value: done / seconds, seconds, requests: None });
    }
    fs::remove_file(Chunks::path(root))?;
    Ok(())
}

fn measure_names(bench: &Bench, root: &Path, peer: &str, rows: &mut [Row]) -> Result<()> {
    let entry = mounted::table().into_iter().find(|entry| entry.at == root);
    let connection = entry.and_then(|entry| entry.fuse_connection());
    let counter = bench.tracepoints.zip(connection).and_then(|(points, id)| Counter::all(points, id).ok());
    let requests = || counter.as_ref().and_then(|counter| counter.read().ok());
    let count = bench.size(10_240, 1_000);
    let names = Names(count);
    for (case, step, _) in METADATA_CASES {
        let before = requests();
        let start = Instant::now();
        step(names, root)?;
        let seconds = start.elapsed().as_secs_f64();
        let requests = before.zip(requests()).map(|(before, after)| after.saturating_sub(before));
        record(rows, case, peer, Sample { value: f64::from(count) / seconds, seconds, requests });
    }
    Ok(())
}

fn measure_data(bench: &Bench, root: &Path, peer: &str, rows: &mut [Row]) -> Result<()> {
    let size = bench.size(1 << 30, 64 << 20);
    fio::lay_out(root, fio::FILE, size)?;
    for (case, pattern, block) in DATA_CASES {
        let fio = Job::cached(pattern, block, fio::FILE, size, bench.size(5, 1));
        record(rows, case, peer, fio.measure(root, || None)?);
    }
    fs::remove_file(root.join(fio::FILE))?;
    Ok(())
}
