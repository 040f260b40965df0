//! One run of the benchmark: finds the programs, mounts the scratch file systems, runs the chosen workloads in order and writes
//! the results after each of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::area::{self, Tmpfs};
use crate::cli::Args;
use crate::image::Server;
use crate::peer::{self, Peer, Program, Programs};
use crate::progress::say;
use crate::report::{self, Results};
use crate::requests::Tracepoints;
use crate::roundtrip::RoundTrips;
use crate::{job, process, workload};

/// The medium that holds the source directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// Memory.
    Tmpfs,
    /// The file system under `--out`.
    Disk,
}

/// The environment of a workload: programs, paths, sizes and the round trips measured at the start.
#[derive(Debug)]
pub struct Bench {
    /// The programs found on this machine.
    pub programs: Programs,
    /// The empty round trips measured in this run.
    pub round_trips: RoundTrips,
    /// Tracepoints for counting requests; none when the kernel does not offer them.
    pub tracepoints: Option<Tracepoints>,
    /// Small sizes and one round: a check of the harness, not a measurement.
    pub quick: bool,
    only_peers: Vec<String>,
    rounds: Option<u32>,
    files: Option<u32>,
    out: PathBuf,
    // Dropped last: unmounted after every other field is gone.
    _tmpfs: Vec<Tmpfs>,
    _lock: fs::File,
}

impl Bench {
    /// The directory for sources on this medium.
    pub fn ground(&self, ground: Ground) -> PathBuf {
        self.out.join(match ground {
            Ground::Tmpfs => "tmpfs",
            Ground::Disk => "disk",
        })
    }

    /// The directory of files kept between runs: downloads and the archives made from them.
    pub fn cache(&self) -> PathBuf {
        self.out.join("cache")
    }

    /// The mount point of a peer.
    pub fn mount_point(&self, peer: Peer) -> PathBuf {
        self.out.join("mnt").join(peer.name())
    }

    /// The mount point of an image.
    pub fn image_point(&self, server: Server) -> PathBuf {
        self.out.join("mnt").join(format!("{server}-image"))
    }

    /// Reports whether this image server is installed and selected by `--peer`.
    pub fn wants(&self, server: Server) -> bool {
        let name = server.to_string();
        let wanted =
            self.only_peers.is_empty() || self.only_peers.iter().any(|part| name.contains(part.as_str()));
        match server {
            Server::Kernel => true,
            Server::Fuse2fs => wanted && Path::new("/usr/bin/fuse2fs").exists(),
            Server::Shunt | Server::ShuntUring => wanted && self.programs.shunt.is_some(),
        }
    }

    /// Filters `peers` to those that are installed and selected by `--peer`; native is always included.
    pub fn present<'a>(&'a self, peers: &'a [Peer]) -> impl Iterator<Item = Peer> + 'a {
        peers.iter().copied().filter(|peer| {
            let wanted = self.only_peers.is_empty()
                || self.only_peers.iter().any(|part| peer.name().contains(part.as_str()));
            peer.program == Program::Native || (wanted && self.programs.path(peer.program).is_some())
        })
    }

    /// The number of rounds: the user's `--rounds`, else one when quick, else `usual`.
    pub fn rounds(&self, usual: u32) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { usual })
    }

    /// The number of files to make: the user's `--files`, else as [`size`](Self::size).
    pub fn files(&self, full: u32, quick: u32) -> u32 {
        self.files.unwrap_or(self.size(full, quick))
    }

    /// Picks `quick` or `full`, by `--quick`.
    pub fn size<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// Runs the workloads that `args` select and writes the report.
///
/// # Errors
/// Without root, when the user interrupts, when a report cannot be written, or with `--strict` when a bar is missed.
pub fn run(args: Args) -> Result<()> {
    let chosen = workload::choose(&args.only)?;
    if args.list {
        for workload in workload::ALL {
            println!("{:<16} {}", workload.name, workload.about);
        }
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        bail!("mounting, counting requests and dropping caches need root: run it as root");
    }
    job::watch()?;
    let bench = prepare(&args)?;
    let mut results = Results::new(&bench);
    for workload in chosen {
        say(format_args!("{}: {}", workload.name, workload.about));
        match (workload.run)(&bench) {
            Ok(rows) => {
                report::table::print(&rows);
                results.rows.extend(rows);
            }
            Err(error) => {
                job::check()?;
                say(format_args!("{} failed: {error:#}", workload.name));
                results.failures.push(format!("{}: {error:#}", workload.name));
            }
        }
        // After each workload, so that an interrupted run keeps what it has.
        results.save(&bench.out.join("results.json"))?;
    }
    drop(bench);
    report::html::write(&results, &args.report)?;
    println!("\n{}", results.verdict());
    say(format_args!("report: {}", args.report.display()));
    if args.strict && !results.all_pass() {
        bail!("not every bar was reached");
    }
    Ok(())
}

fn prepare(args: &Args) -> Result<Bench> {
    fs::create_dir_all(&args.out).with_context(|| format!("make {}", args.out.display()))?;
    let out = args.out.canonicalize()?;
    let lock = lock(&out)?;
    area::clear_leftovers(&out);
    for name in ["cache", "disk"] {
        fs::create_dir_all(out.join(name))?;
    }
    raise_descriptors()?;
    let programs = find_programs(args, &out)?;
    let tmpfs = vec![Tmpfs::mount(&out.join("tmpfs"), 80)?, Tmpfs::mount(&out.join("mnt"), 5)?];
    let tracepoints = Tracepoints::find(&out.join("trace"))
        .inspect_err(|error| say(format_args!("requests are not counted: {error:#}")))
        .ok();
    say("measuring the empty round trip");
    let round_trips = RoundTrips::measure(&out.join("mnt/empty"), args.quick, tracepoints)?;
    say(format_args!("empty round trip over /dev/fuse: {}; {}", round_trips.dev, process::processor()));
    match &round_trips.ring {
        Some(ring) => say(format_args!("empty round trip over io_uring: {ring}")),
        None => say("this kernel has no FUSE over io_uring: peers that use it fail"),
    }
    Ok(Bench {
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

/// Takes the lock of `out`: one run at a time, since each run unmounts what it finds mounted below it.
fn lock(out: &Path) -> Result<fs::File> {
    let file = fs::File::create(out.join("lock"))?;
    file.try_lock().with_context(|| format!("another run uses {}", out.display()))?;
    Ok(file)
}

/// Raises the limit of open files, so that peers that hold a descriptor per inode fail at their own limits, not at the harness's.
fn raise_descriptors() -> Result<()> {
    let most: u64 = fs::read_to_string("/proc/sys/fs/nr_open")?.trim().parse()?;
    if setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: Some(most) }).is_ok() {
        return Ok(());
    }
    // Without CAP_SYS_RESOURCE the hard limit stays.
    let hard = getrlimit(Resource::Nofile).maximum;
    say(format_args!("daemons may open {} files: the limit cannot be raised here", hard.unwrap_or(most)));
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).context("raise the open files")
}

fn find_programs(args: &Args, out: &Path) -> Result<Programs> {
    let given = |name: &str, path: &Option<PathBuf>, how: &str| {
        let found = path.as_ref().and_then(|path| path.canonicalize().ok());
        if found.is_none() {
            say(format_args!("{name} is left out: {how}"));
        }
        found
    };
    let bindfs = given("bindfs", &Some("/usr/bin/bindfs".into()), "apt-get install bindfs");
    let how = "PEER_PASSTHROUGH_HP names libfuse's passthrough_hp";
    let libfuse = given("libfuse", &args.passthrough_hp, how);
    let shunt = given("shunt", &args.shunt, "--shunt names its binary");
    let fuser = peer::install_fuser(&out.join("fuser"));
    job::check()?;
    let fuser = fuser.inspect_err(|error| say(format_args!("fuser is left out: {error:#}"))).ok();
    Ok(Programs { bindfs, fuser, libfuse, shunt })
}
