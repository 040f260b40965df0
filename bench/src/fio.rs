//! Runs fio, one job at a time, and reads its JSON report.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::cgroup::MemoryGroup;
use crate::model::Sample;
use crate::peer_mount::PeerMount;

/// The name of the file that every job works on.
pub const FILE: &str = "data";

/// The four patterns of seed and issue.
pub const PATTERNS: [&str; 4] = ["read", "write", "randread", "randwrite"];

/// One job of fio.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// `read`, `write`, `randread` or `randwrite`.
    pub pattern: &'a str,
    /// Bytes per request.
    pub block: u32,
    /// The file's name in the mount.
    pub file: &'a str,
    /// Bytes of the file.
    pub size: u64,
    /// The time limit in seconds; with `repeat` the job passes over the file again until then.
    pub seconds: u32,
    /// Pass over the file again until the time limit.
    pub repeat: bool,
    /// Use libaio with `O_DIRECT` at this depth, instead of synchronous calls.
    pub aio_depth: Option<u32>,
    /// Use synchronous calls with `O_DIRECT`.
    pub direct: bool,
    /// The number of concurrent jobs; their rates are added up.
    pub jobs: u32,
    /// The job creates the file anew.
    pub new: bool,
    /// fsync the file on close.
    pub fsync_on_close: bool,
    /// The memory group that the page cache counts against.
    pub group: Option<&'a MemoryGroup>,
}

#[derive(Deserialize)]
struct Report {
    jobs: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    io_bytes: u64,
    runtime: u64,
}

impl<'a> Job<'a> {
    /// A job of synchronous calls, repeated until the time limit.
    pub fn cached(pattern: &'a str, block: u32, file: &'a str, size: u64, seconds: u32) -> Self {
        Self {
            pattern,
            block,
            file,
            size,
            seconds,
            repeat: true,
            aio_depth: None,
            direct: false,
            jobs: 1,
            new: false,
            fsync_on_close: false,
            group: None,
        }
    }

    /// Runs the job on the mount's file and returns MiB/s.
    ///
    /// # Errors
    /// When fio fails.
    pub fn run(&self, mount: &PeerMount) -> Result<Sample> {
        self.run_in(mount, &mount.root)
    }

    /// Runs the job on the same file in another directory, such as the mount's source.
    ///
    /// # Errors
    /// When fio fails.
    pub fn run_in(&self, mount: &PeerMount, root: &Path) -> Result<Sample> {
        self.measure(root, || mount.requests())
    }

    /// Runs the job on the file in `root`; `requests` returns the requests counted so far.
    ///
    /// # Errors
    /// When fio fails.
    pub fn measure(&self, root: &Path, requests: impl Fn() -> Option<u64>) -> Result<Sample> {
        let before = requests();
        let start = Instant::now();
        let output = crate::job::run(&mut self.command(root))?;
        let seconds = start.elapsed().as_secs_f64();
        let requests = before.zip(requests()).map(|(before, after)| after.saturating_sub(before));
        // Some versions print a warning before the report.
        let json = output.iter().position(|byte| *byte == b'{').context("fio printed no report")?;
        let report: Report = serde_json::from_slice(&output[json..]).context("parse the report of fio")?;
        let part = report.jobs.first().context("the report of fio has no job")?;
        let bytes = part.read.io_bytes + part.write.io_bytes;
        // The jobs run concurrently, so their times are not added up.
        let milliseconds = (part.read.runtime + part.write.runtime).max(1);
        let rate = bytes as f64 / f64::from(1 << 20) / (milliseconds as f64 / 1e3);
        Ok(Sample { value: rate, seconds, requests })
    }

    fn command(&self, root: &Path) -> Command {
        let mut command = match self.group {
            Some(group) => {
                let mut shell = group.command();
                shell.arg("fio");
                shell
            }
            None => Command::new("fio"),
        };
        command.arg(format!("--filename={}", root.join(self.file).display()));
        command.args(["--name=job", "--output-format=json", "--randseed=0", "--fallocate=none"]);
        // A workload that needs a cold cache drops it itself; fio must not.
        command.args(["--invalidate=0", "--thread", "--group_reporting"]);
        command.arg(format!("--overwrite={}", u8::from(!self.new)));
        command.arg(format!("--numjobs={}", self.jobs));
        command.arg(format!("--rw={}", self.pattern));
        command.arg(format!("--bs={}", self.block));
        command.arg(format!("--size={}", self.size));
        command.arg(format!("--runtime={}", self.seconds));
        command.args(self.repeat.then_some("--time_based"));
        command.args(self.fsync_on_close.then_some("--fsync_on_close=1"));
        match self.aio_depth {
            Some(depth) => {
                command.args(["--ioengine=libaio", "--direct=1"]).arg(format!("--iodepth={depth}"))
            }
            None => command.arg("--ioengine=psync").args(self.direct.then_some("--direct=1")),
        };
        command
    }
}

/// Fills the file with nonzero bytes, fsyncs it, and leaves it in the page cache.
///
/// # Errors
/// When the space does not suffice, or the user interrupts.
pub fn lay_out(source: &Path, name: &str, size: u64) -> Result<()> {
    let block: Vec<u8> =
        (0..1_u32 << 18).flat_map(|at| at.wrapping_mul(2_654_435_761).to_ne_bytes()).collect();
    let mut file = File::create(source.join(name))?;
    let mut left = size;
    while left > 0 {
        crate::job::check()?;
        let part = left.min(block.len() as u64);
        file.write_all(&block[..usize::try_from(part)?])?;
        left -= part;
    }
    Ok(file.sync_all()?)
}
