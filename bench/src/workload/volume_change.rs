//! Propagation between two mounts through a durable PostgreSQL and S3: the latency until a change of one node is visible on the
//! other, and the bytes uploaded for an edit.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use shunt_test_support::servers::{Postgres, S3};

use super::Workload;
use crate::context::{Bench, Medium};
use crate::engine;
use crate::job;
use crate::model::{Row, Sample, Unit};
use crate::progress::say;

pub const WORKLOAD: Workload = Workload {
    name: "volume-change",
    about: "delay until a change on one node is visible on another, through durable PostgreSQL and S3; bytes uploaded for an edit",
    run,
};

const SHUNT: &str = "shunt";
/// Threshold: seconds until a change is visible.
const MAX_VISIBLE_SECONDS: f64 = 0.1;
/// Threshold: mebibytes uploaded for an edit of 4 KiB.
const MAX_UPLOADED_MIB: f64 = 8.0;
/// Timeout of every wait.
const WAIT_TIMEOUT: Duration = Duration::from_secs(300);
/// Polling interval, which leaves the processor to the nodes.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A mounted volume, unmounted on drop.
struct MountedVolume<'a> {
    program: &'a Path,
    at: PathBuf,
}

impl Drop for MountedVolume<'_> {
    fn drop(&mut self) {
        let _ = Command::new(self.program).arg("umount").arg(&self.at).output();
    }
}

/// The servers and settings that both nodes share.
struct Shared<'a> {
    program: &'a Path,
    home: &'a Path,
    database: Postgres,
    server: S3,
}

impl<'a> Shared<'a> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command
            .arg("volume")
            .args(words)
            .env("HOME", self.home)
            .env("AWS_ENDPOINT_URL", self.server.endpoint());
        command.env("AWS_ACCESS_KEY_ID", S3::KEYS.0).env("AWS_SECRET_ACCESS_KEY", S3::KEYS.1);
        command.env("AWS_REGION", "us-east-1");
        command
    }

    fn mount(&self, node: &str) -> Result<MountedVolume<'a>> {
        let (at, cache) = (self.home.join(node), self.home.join(format!("cache-{node}")));
        fs::create_dir_all(&at)?;
        let meta = self.database.tcp_address();
        let mut command = self.command(&["mount", "--daemon", "--node", node, "--meta", &meta, "--cache"]);
        job::run(command.arg(cache).arg("bench").arg(&at))?;
        Ok(MountedVolume { program: self.program, at })
    }

    /// Bytes in the bucket.
    fn stored(&self) -> Result<u64> {
        fn below(dir: &Path) -> Result<u64> {
            let mut sum = 0;
            for entry in fs::read_dir(dir)? {
                let entry = entry?;
                // An object is renamed when its upload completes and may disappear under its first name.
                let Ok(about) = entry.metadata() else { continue };
                sum += if about.is_dir() { below(&entry.path())? } else { about.len() };
            }
            Ok(sum)
        }
        below(&self.server.bucket())
    }
}

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let Some(database) = Postgres::start(true) else { bail!("PostgreSQL is not installed; run tests/setup") };
    let Some(server) = S3::start() else { bail!("versitygw is not installed; run tests/setup") };
    let home = tempfile::tempdir_in(bench.source_dir(Medium::Disk))?;
    let program = bench.programs.shunt.as_deref().context("no shunt binary; give its path with --shunt")?;
    let shared = Shared { program, home: home.path(), database, server };
    let meta = shared.database.tcp_address();
    job::run(&mut shared.command(&["create", "bench", "--meta", &meta, "--data", "s3://bucket/volume"]))?;
    let (here, there) = (shared.mount("here")?, shared.mount("there")?);

    let mut name = Row::new(WORKLOAD.name, "name-shows", Unit::Seconds);
    let mut content = Row::new(WORKLOAD.name, "content-shows", Unit::Seconds);
    say(format_args!("{}: delay until a change is visible", WORKLOAD.name));
    let rounds = bench.size(100, 5);
    for round in 0..rounds {
        job::check()?;
        let new = format!("new{round}");
        ensure!(!there.at.join(&new).exists(), "the name existed before its creation");
        fs::write(here.at.join(&new), &new)?;
        record(&mut name, wait_until(|| Ok(there.at.join(&new).exists()))?);
        let text = format!("round {round}");
        fs::write(here.at.join("file"), &text)?;
        let reads = || Ok(fs::read_to_string(there.at.join("file")).is_ok_and(|read| read == text));
        record(&mut content, wait_until(reads)?);
    }
    for row in [&mut name, &mut content] {
        row.notes.push(format!(
            "{rounds} samples of the time from close on one node until a poll every millisecond sees it on the other"
        ));
    }

    let mut edit = Row::new(WORKLOAD.name, "edit-4k-travels", Unit::Mebibytes);
    let size: u64 = bench.size(1 << 30, 128 << 20);
    say(format_args!("{}: bytes uploaded for an edit", WORKLOAD.name));
    fs::write(here.at.join("large"), engine::noise(3, size as usize))?;
    wait_until(|| Ok(shared.stored()? >= size))?;
    wait_until_idle(&shared)?;
    let before = shared.stored()?;
    let large = File::options().write(true).open(here.at.join("large"))?;
    large.write_all_at(&[7; 4096], size / 2)?;
    drop(large);
    let mut read = [0; 4096];
    wait_until(|| {
        File::open(there.at.join("large"))?.read_exact_at(&mut read, size / 2)?;
        Ok(read == [7; 4096])
    })?;
    wait_until_idle(&shared)?;
    let value = (shared.stored()? - before) as f64 / f64::from(1 << 20);
    edit.record(SHUNT, Ok(Sample { value, seconds: 0.0, requests: None }));
    edit.notes.push(format!(
        "uploaded for an edit of a file of {} MiB; a reader of the range downloads as much",
        size >> 20
    ));

    for row in [&mut name, &mut content, &mut edit] {
        row.finish(&bench.round_trips);
    }
    name.limit(SHUNT, MAX_VISIBLE_SECONDS);
    content.limit(SHUNT, MAX_VISIBLE_SECONDS);
    edit.limit(SHUNT, MAX_UPLOADED_MIB);
    drop((here, there));
    Ok(vec![name, content, edit])
}

/// Polls until the condition holds and returns the seconds that it took.
fn wait_until(mut is_so: impl FnMut() -> Result<bool>) -> Result<f64> {
    let start = Instant::now();
    while !is_so()? {
        job::check()?;
        ensure!(start.elapsed() < WAIT_TIMEOUT, "the change was not visible within {WAIT_TIMEOUT:?}");
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Returns once the bucket has stopped growing.
fn wait_until_idle(shared: &Shared<'_>) -> Result<()> {
    let mut before = u64::MAX;
    wait_until(|| {
        let now = shared.stored()?;
        let is_still = now == before;
        before = now;
        std::thread::sleep(Duration::from_secs(3));
        Ok(is_still)
    })?;
    Ok(())
}

fn record(row: &mut Row, seconds: f64) {
    row.record(SHUNT, Ok(Sample { value: seconds, seconds, requests: None }));
}
