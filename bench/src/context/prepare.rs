//! Prepares the context of a run: lock, limits, programs, scratch file systems and round trips.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Bench;
use crate::cli::Args;
use crate::peer::{self, Programs};
use crate::progress::say;
use crate::requests::Tracepoints;
use crate::scratch::{self, Tmpfs};
use crate::{job, process, roundtrip};

impl Bench {
    /// Finds the programs, mounts the scratch file systems and measures the empty round trips.
    ///
    /// # Errors
    /// When another run uses the same directory, and without root.
    pub fn prepare(args: &Args) -> Result<Self> {
        fs::create_dir_all(&args.out).with_context(|| format!("create {}", args.out.display()))?;
        let out = args.out.canonicalize()?;
        let lock = lock(&out)?;
        scratch::clear_leftovers(&out);
        for name in ["cache", "disk"] {
            fs::create_dir_all(out.join(name))?;
        }
        raise_descriptors()?;
        let programs = find_programs(args, &out)?;
        let tmpfs = vec![Tmpfs::mount(&out.join("tmpfs"), 80)?, Tmpfs::mount(&out.join("mnt"), 5)?];
        let tracepoints = Tracepoints::find(&out.join("trace"))
            .inspect_err(|error| say(format_args!("cannot count requests: {error:#}")))
            .ok();
        say("measuring the empty round trip");
        let round_trips = roundtrip::measure(&out.join("mnt/empty"), args.quick, tracepoints)?;
        say(format_args!("empty round trip over /dev/fuse: {}; {}", round_trips.dev, process::processor()));
        match &round_trips.ring {
            Some(ring) => say(format_args!("empty round trip over io_uring: {ring}")),
            None => say("this kernel does not support FUSE over io_uring: peers that use it will fail"),
        }
        Ok(Self {
            programs,
            round_trips,
            tracepoints,
            quick: args.quick,
            only_peers: args.peer.clone(),
            rounds: args.rounds,
            files: args.files,
            out,
            _tmpfs: tmpfs,
            _lock: lock,
        })
    }
}

/// Takes the lock of `out`: one run at a time, since each run unmounts what it finds mounted below it.
fn lock(out: &Path) -> Result<fs::File> {
    let file = fs::File::create(out.join("lock"))?;
    file.try_lock().with_context(|| format!("lock {}: another run uses it", out.display()))?;
    Ok(file)
}

/// Raises the limit of open files, so that peers that hold a descriptor per inode fail at their own limits, not at the harness's.
fn raise_descriptors() -> Result<()> {
    let max: u64 = fs::read_to_string("/proc/sys/fs/nr_open")?.trim().parse()?;
    if setrlimit(Resource::Nofile, Rlimit { current: Some(max), maximum: Some(max) }).is_ok() {
        return Ok(());
    }
    // Without CAP_SYS_RESOURCE the hard limit stays.
    let hard = getrlimit(Resource::Nofile).maximum;
    say(format_args!(
        "cannot raise the limit of open files above {}: daemons may fail at that limit",
        hard.unwrap_or(max)
    ));
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard })
        .context("raise the limit of open files")
}

fn find_programs(args: &Args, out: &Path) -> Result<Programs> {
    let given = |name: &str, path: &Option<PathBuf>, how: &str| {
        let found = path.as_ref().and_then(|path| path.canonicalize().ok());
        if found.is_none() {
            say(format_args!("{name} is skipped: {how}"));
        }
        found
    };
    let bindfs =
        given("bindfs", &Some("/usr/bin/bindfs".into()), "not installed; run apt-get install bindfs");
    let how = "no binary; set PEER_PASSTHROUGH_HP to the path of libfuse's passthrough_hp";
    let libfuse = given("libfuse", &args.passthrough_hp, how);
    let shunt = given("shunt", &args.shunt, "no binary; give its path with --shunt");
    let fuser = peer::install_fuser(&out.join("fuser"));
    job::check()?;
    let fuser = fuser.inspect_err(|error| say(format_args!("fuser is skipped: {error:#}"))).ok();
    Ok(Programs { bindfs, fuser, libfuse, shunt })
}
