//! The empty round trip: the cost of one request whose handler does no work.
//!
//! A server without a library, in a process of its own, answers GETATTR with a timeout of zero; the client calls `fstat` in a
//! loop. The number of requests times this cost is a floor that no daemon on the same transport can go below.

mod ring;
mod server;
mod wire;

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags};
use rustix::thread::CpuSet;
use serde::Serialize;

use crate::mounted::Mounted;
use crate::peer::UringSwitch;
use crate::requests::{Counter, Tracepoints};
pub use server::serve;

/// Microseconds per empty request.
#[derive(Debug, Clone, Serialize)]
pub struct RoundTrip {
    /// Client and server on one core.
    pub same_core_us: f64,
    /// Client and server on two cores; none on a machine with one.
    pub cross_core_us: Option<f64>,
    /// Client and server unpinned; over io_uring, with a server thread on each core.
    pub unpinned_us: f64,
}

/// The round trips of both transports.
#[derive(Debug, Clone, Serialize)]
pub struct RoundTrips {
    /// Over `/dev/fuse`.
    pub dev: RoundTrip,
    /// Over io_uring, where the kernel has it.
    pub ring: Option<RoundTrip>,
}

impl RoundTrips {
    /// Measures the available transports on a mount at `at`.
    ///
    /// # Errors
    /// The errors of [`RoundTrip::measure`].
    pub fn measure(at: &Path, quick: bool, points: Option<Tracepoints>) -> Result<Self> {
        let dev = RoundTrip::measure(at, quick, points, false)?;
        let ring = match UringSwitch::on() {
            Ok(_on) => Some(RoundTrip::measure(at, quick, points, true)?),
            Err(_) => None,
        };
        Ok(Self { dev, ring })
    }

    /// The cheapest round trip on the transport of this peer, in seconds.
    pub fn least(&self, peer: &str) -> f64 {
        let ring = self.ring.as_ref().filter(|_| peer.contains("-uring"));
        ring.unwrap_or(&self.dev).least()
    }
}

impl fmt::Display for RoundTrip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cross = self.cross_core_us.map_or("-".into(), |us| format!("{us:.1}"));
        let Self { same_core_us: same, unpinned_us: unpinned, .. } = self;
        write!(f, "{same:.1} us on one core, {cross} us across cores, {unpinned:.1} us unpinned")
    }
}

impl RoundTrip {
    /// Measures all three placements on a mount at `at`.
    ///
    /// # Errors
    /// Without root or `/dev/fuse`, and when calls turn out not to have reached the server.
    fn measure(at: &Path, quick: bool, points: Option<Tracepoints>, rings: bool) -> Result<Self> {
        let one = |cores, batches| one(at, cores, rings, batches, points);
        let batches = if quick { 20 } else { 100 };
        let two = std::thread::available_parallelism()?.get() > 1;
        Ok(Self {
            same_core_us: one(Some((0, 0)), batches)?,
            cross_core_us: if two { Some(one(Some((0, 1)), batches)?) } else { None },
            unpinned_us: one(None, batches)?,
        })
    }

    /// The cheapest of the three, in seconds; the floor is computed with it.
    fn least(&self) -> f64 {
        self.same_core_us.min(self.unpinned_us).min(self.cross_core_us.unwrap_or(f64::MAX)) / 1e6
    }
}

/// Measures one placement: client and server on the given cores, or unpinned.
fn one(
    at: &Path,
    cores: Option<(usize, usize)>,
    rings: bool,
    batches: usize,
    points: Option<Tracepoints>,
) -> Result<f64> {
    const BATCH: u32 = 500;
    let mut server = Command::new(std::env::current_exe()?);
    server.arg("--answer").arg(at).args(rings.then_some("--rings"));
    if let Some((_, core)) = cores {
        server.arg("--core").arg(core.to_string());
    }
    let mounted = Mounted::start(&mut server, at)?;
    let counter = points.map(|points| Counter::all(points, mounted.connection())).transpose()?;
    let before = rustix::thread::sched_getaffinity(None)?;
    if let Some((core, _)) = cores {
        pin(core)?;
    }
    let times = || -> Result<Vec<f64>> {
        let root = rustix::fs::open(at, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let mut times = Vec::with_capacity(batches);
        for _ in 0..batches {
            crate::job::check()?;
            let start = Instant::now();
            for _ in 0..BATCH {
                rustix::fs::fstat(&root)?;
            }
            times.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(BATCH));
        }
        Ok(times)
    };
    let times = times();
    rustix::thread::sched_setaffinity(None, &before)?;
    let served = counter.map(|counter| counter.read()).transpose()?;
    mounted.end()?;
    let asked = batches as u64 * u64::from(BATCH);
    if served.is_some_and(|served| served < asked) {
        bail!("only {served:?} of {asked} calls reached the empty server: the round trip means nothing");
    }
    crate::model::median(&times?).context("no batch ran")
}

fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).context("pin to a core")
}
