//! A volume on one machine, beside a plain directory of the same disk: names, and a file that is here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use super::Workload;
use crate::bench::{Bench, Ground};
use crate::fio::{self, Job};
use crate::image::Names;
use crate::job;
use crate::model::{Row, Sample, Unit};
use crate::progress::say;

pub const WORKLOAD: Workload = Workload {
    name: "volume",
    about: "a volume of one machine: 10,240 files made, asked for and removed, and fio on a file that is here",
    run,
};

const NATIVE: &str = "native";
const SHUNT: &str = "shunt";

/// Of the native rate, at least.
const NAMES: [(&str, f64); 3] = [("create", 0.30), ("stat", 0.50), ("delete", 0.30)];
/// As for a mirror.
const DATA: [(&str, &str, u32, f64); 4] = [
    ("read-1m", "read", 1 << 20, 0.95),
    ("write-1m", "write", 1 << 20, 0.95),
    ("randread-4k", "randread", 4096, 0.90),
    ("randwrite-4k", "randwrite", 4096, 0.90),
];

/// A mounted volume, gone on drop with all that belongs to it.
struct Mounted<'a> {
    program: &'a Path,
    home: PathBuf,
    at: PathBuf,
}

impl<'a> Mounted<'a> {
    fn new(bench: &'a Bench) -> Result<Self> {
        let program = bench.programs.shunt.as_deref().context("no shunt")?;
        let home = bench.ground(Ground::Disk).join("volume");
        let mounted = Self { program, at: home.join("mnt"), home };
        fs::create_dir_all(&mounted.at)?;
        let data = |command: &mut Command| {
            command.env("XDG_DATA_HOME", &mounted.home);
            job::run(command)
        };
        data(Command::new(program).args(["volume", "create", "bench"]))?;
        let mut command = Command::new(program);
        command.args(["volume", "mount", "--daemon", "--node", "bench", "--cache"]);
        command.arg(mounted.home.join("cache")).arg("bench").arg(&mounted.at);
        data(&mut command)?;
        Ok(mounted)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new(self.program).arg("umount").arg(&self.at).output();
        if fs::remove_dir(&self.at).is_ok() {
            let _ = fs::remove_dir_all(&self.home);
        }
    }
}

type Step = fn(Names, &Path) -> Result<()>;

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = NAMES
        .iter()
        .map(|(case, _)| Row::new(WORKLOAD.name, case, Unit::PerSecond))
        .chain(DATA.iter().map(|(case, ..)| Row::new(WORKLOAD.name, case, Unit::MebibytesPerSecond)))
        .collect();
    for round in 0..bench.rounds(3) {
        say(format_args!("{}: round {}", WORKLOAD.name, round + 1));
        let native = bench.ground(Ground::Disk).join("native");
        fs::create_dir_all(&native)?;
        let done = measure(bench, &native, NATIVE, &mut rows);
        fs::remove_dir_all(&native)?;
        done?;
        let mounted = Mounted::new(bench)?;
        measure(bench, &mounted.at, SHUNT, &mut rows)?;
    }
    for row in &mut rows {
        row.finish(&bench.round_trips);
        let bars = NAMES.iter().copied().chain(DATA.iter().map(|(case, _, _, bar)| (*case, *bar)));
        for (_, bar) in bars.filter(|(case, _)| row.case == *case).collect::<Vec<_>>() {
            row.at_least(SHUNT, bar, NATIVE);
        }
    }
    Ok(rows)
}

fn measure(bench: &Bench, root: &Path, peer: &str, rows: &mut [Row]) -> Result<()> {
    let count = bench.size(10_240, 1_000);
    let names = Names(count);
    let mut record = |case: &str, sample: Sample| {
        if let Some(row) = rows.iter_mut().find(|row| row.case == case) {
            row.record(peer, Ok(sample));
        }
    };
    let steps: [(&str, Step); 3] =
        [("create", Names::create), ("stat", Names::stat), ("delete", Names::unlink)];
    for (case, step) in steps {
        let start = Instant::now();
        step(names, root)?;
        let seconds = start.elapsed().as_secs_f64();
        record(case, Sample { value: f64::from(count) / seconds, seconds, requests: None });
    }
    let size = bench.size(1 << 30, 64 << 20);
    fio::lay_out(root, fio::FILE, size)?;
    for (case, pattern, block, _) in DATA {
        let fio = Job::cached(pattern, block, fio::FILE, size, bench.size(5, 1));
        record(case, fio.measure(root, || None)?);
    }
    fs::remove_file(root.join(fio::FILE))?;
    Ok(())
}
