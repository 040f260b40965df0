//! Many files in one volume, in bounded memory.
//!
//! The work runs in a process of its own below a memory limit, page cache included: a process that needs more is killed.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use shunt_volume::address::MetaAddress;
use shunt_volume::maintenance::{Depth, fsck};
use shunt_volume::object::Kind;
use shunt_volume::open;
use shunt_volume::replica::{Options, ROOT, Replica, SyncAdapter};
use shunt_volume::sync::Synchroniser;
use shunt_volume::volume::Volume;

use super::Workload;
use crate::cgroup::MemoryGroup;
use crate::context::{Bench, Medium};
use crate::engine;
use crate::job;
use crate::model::{Row, Sample, Unit};
use crate::progress::say;

pub const WORKLOAD: Workload = Workload {
    name: "volume-many",
    about: "many files in one volume with at most 512 MiB of memory: create, upload, reopen, list, check (--files 10000000)",
    run,
};

const SHUNT: &str = "shunt";
const NATIVE: &str = "native";
const MAX_MEMORY_BYTES: u64 = 512 << 20;
/// Files per directory.
const FILES_PER_DIRECTORY: u32 = 10_000;
/// Names per page of a listing.
const NAMES_PER_PAGE: usize = 1024;

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let count = bench.files(1_000_000, 5_000);
    let home = tempfile::tempdir_in(bench.source_dir(Medium::Disk))?;
    let group = MemoryGroup::new(MAX_MEMORY_BYTES)?;
    say(format_args!("{}: {count} files", WORKLOAD.name));
    let mut rows = Vec::new();
    for (peer, more) in [(NATIVE, "--plain"), (SHUNT, "--in-volume")] {
        let at = home.path().join(peer);
        std::fs::create_dir(&at)?;
        let mut command = group.command();
        command.arg(std::env::current_exe()?).arg(more).arg(&at).arg("--files").arg(count.to_string());
        let output = String::from_utf8(job::run(&mut command)?)?;
        for line in output.lines() {
            let (case, value) =
                line.split_once(' ').context("output of the subprocess is not a case and a number")?;
            let value: f64 = value.parse()?;
            let at = rows.iter().position(|row: &Row| row.case == case).unwrap_or_else(|| {
                let unit = if case == "peak" { Unit::Mebibytes } else { Unit::PerSecond };
                rows.push(Row::new(WORKLOAD.name, case, unit));
                rows.len() - 1
            });
            rows[at].record(peer, Ok(Sample { value, seconds: 0.0, requests: None }));
        }
        // The disk may not have inodes for both peers.
        std::fs::remove_dir_all(&at)?;
    }
    for row in &mut rows {
        row.notes.push(format!(
            "{count} files, {FILES_PER_DIRECTORY} per directory; the limit of 512 MiB applies to all steps"
        ));
        row.finish(&bench.round_trips);
        if row.case == "peak" { row.limit(SHUNT, 512.0) } else { row.works(SHUNT) }
    }
    Ok(rows)
}

fn print_rate(case: &str, count: u32, start: Instant) {
    println!("{case} {:.1}", f64::from(count) / start.elapsed().as_secs_f64());
}

/// Peak resident memory of this process, in MiB.
fn peak() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<f64>()? / 1024.0)
}

/// Makes and lists the files in a plain directory.
///
/// # Errors
/// Errors of the file system; when a file is not listed.
pub fn plain(at: &Path, count: u32) -> Result<()> {
    let start = Instant::now();
    for n in 0..count {
        let directory = at.join(format!("{:05}", n / FILES_PER_DIRECTORY));
        if n % FILES_PER_DIRECTORY == 0 {
            std::fs::create_dir(&directory)?;
        }
        std::fs::File::create_new(directory.join(format!("file{n:08}")))?;
    }
    print_rate("make", count, start);
    let start = Instant::now();
    let mut listed = 0;
    for directory in std::fs::read_dir(at)? {
        for file in std::fs::read_dir(directory?.path())? {
            file?.metadata()?;
            listed += 1;
        }
    }
    ensure!(listed == count, "{listed} files listed instead of {count}");
    print_rate("list", count, start);
    Ok(())
}

fn open(at: &Path, volume: &Volume) -> Result<(Arc<Replica>, Synchroniser<SyncAdapter>)> {
    let node = "bench".parse().ok().context("invalid node name")?;
    let replica = Arc::new(Replica::open(&at.join("cache"), Options::new("bench", node))?);
    let site = SyncAdapter::new(replica.clone(), volume.meta.clone(), volume.content.clone());
    let node = replica.node_name().clone();
    Ok((replica, Synchroniser::new(site, volume.meta.clone(), node, rand::random::<u128>)))
}

/// Makes, sends, reopens, lists and checks the files in a volume.
///
/// # Errors
/// Errors of the volume; when its content is not as expected.
pub fn in_volume(at: &Path, count: u32) -> Result<()> {
    let meta = MetaAddress::Sqlite(at.join("volume"));
    let name = "bench".parse().ok().context("invalid volume name")?;
    let volume = open::create(&meta, &name, &open::Options::default())?;
    let (replica, mut sync) = open(at, &volume)?;
    let start = Instant::now();
    let mut directory = ROOT;
    for n in 0..count {
        if n % FILES_PER_DIRECTORY == 0 {
            let name = format!("{:05}", n / FILES_PER_DIRECTORY);
            directory = replica.make(ROOT, name.as_bytes(), engine::new(Kind::Directory))?.ino;
        }
        replica.make(directory, format!("file{n:08}").as_bytes(), engine::new(Kind::Regular))?;
    }
    replica.sync()?;
    print_rate("make", count, start);
    let start = Instant::now();
    loop {
        let step = sync.step()?;
        if !step.more && step.sent == 0 && step.received == 0 {
            break;
        }
    }
    print_rate("send", count, start);
    drop((replica, sync, volume));
    let start = Instant::now();
    let volume = open::open(&meta, &name, None)?;
    let (replica, _sync) = open(at, &volume)?;
    print_rate("restart", count, start);
    let start = Instant::now();
    let mut listed = 0;
    for directory in list_all(&replica, ROOT, |_| {})? {
        list_all(&replica, directory, |files| listed += files)?;
    }
    ensure!(listed == count as usize, "{listed} files listed instead of {count}");
    print_rate("list", count, start);
    let start = Instant::now();
    let checked = fsck(&volume, Depth::Locations, &|_, _| ())?;
    ensure!(checked.count == 0, "{:?}", checked.problems.first());
    ensure!(checked.objects > u64::from(count), "only {} objects checked", checked.objects);
    print_rate("check", count, start);
    println!("peak {:.1}", peak()?);
    Ok(())
}

/// Lists a directory and returns its subdirectories; calls `on_page` with the number of names of each page.
fn list_all(replica: &Replica, num: u64, mut on_page: impl FnMut(usize)) -> Result<Vec<u64>> {
    let (mut after, mut directories) = (Vec::new(), Vec::new());
    loop {
        let page = replica.list(num, &after, NAMES_PER_PAGE)?;
        on_page(page.len());
        directories.extend(page.iter().filter(|one| one.inode.is_directory()).map(|one| one.inode.ino));
        match page.into_iter().last() {
            Some(last) => after = last.name,
            None => return Ok(directories),
        }
    }
}
