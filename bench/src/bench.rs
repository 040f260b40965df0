//! The run: what is there, what is measured, in which order.

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

/// Where sources lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// Memory.
    Tmpfs,
    /// The file system under `--out`.
    Disk,
}

/// Everything a workload needs.
#[derive(Debug)]
pub struct Bench {
    /// The programs found.
    pub programs: Programs,
    /// The empty round trips of this run.
    pub round_trips: RoundTrips,
    /// For counting requests; none when the kernel does not offer them.
    pub tracepoints: Option<Tracepoints>,
    /// A check of the harness, not a measurement.
    pub quick: bool,
    only_peers: Vec<String>,
    rounds: Option<u32>,
    files: Option<u32>,
    out: PathBuf,
    // Last: unmounted after everything else is gone.
    _tmpfs: Vec<Tmpfs>,
    _lock: fs::File,
}

impl Bench {
    /// A directory for sources.
    pub fn ground(&self, ground: Ground) -> PathBuf {
        self.out.join(match ground {
            Ground::Tmpfs => "tmpfs",
            Ground::Disk => "disk",
        })
    }

    /// What is kept between runs: downloads and what is made of them.
    pub fn cache(&self) -> PathBuf {
        self.out.join("cache")
    }

    /// Where a peer is mounted.
    pub fn mount_point(&self, peer: Peer) -> PathBuf {
        self.out.join("mnt").join(peer.name())
    }

    /// Where an image is mounted.
    pub fn image_point(&self, server: Server) -> PathBuf {
        self.out.join("mnt").join(format!("{server}-image"))
    }

    /// Whether this server of images is there and wanted.
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

    /// Those of `peers` that are there and wanted.
    pub fn present<'a>(&'a self, peers: &'a [Peer]) -> impl Iterator<Item = Peer> + 'a {
        peers.iter().copied().filter(|peer| {
            let wanted = self.only_peers.is_empty()
                || self.only_peers.iter().any(|part| peer.name().contains(part.as_str()));
            peer.program == Program::Native || (wanted && self.programs.path(peer.program).is_some())
        })
    }

    /// How often: what the user says, else once when quick, else `usual`.
    pub fn rounds(&self, usual: u32) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { usual })
    }

    /// Files to make: what the user says, else as [`size`](Self::size).
    pub fn files(&self, full: u32, quick: u32) -> u32 {
        self.files.unwrap_or(self.size(full, quick))
    }

    /// The size for this run.
    pub fn size<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// Runs what `args` ask for.
///
/// # Errors
/// Without root, when the user interrupts, or when a report cannot be written.
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

/// One run at a time: the next one takes off what it finds mounted below `out`.
fn lock(out: &Path) -> Result<fs::File> {
    let file = fs::File::create(out.join("lock"))?;
    file.try_lock().with_context(|| format!("another run uses {}", out.display()))?;
    Ok(file)
}

/// Peers that hold a descriptor per inode shall fail for their own limits, not for ours.
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
