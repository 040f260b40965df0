//! The empty round trip: the cost of one request whose handler does no work.
//!
//! A server without a library, in a process of its own, answers GETATTR with a timeout of zero; the client calls `fstat` in a
//! loop. The number of requests times this cost is a floor that no daemon on the same transport can go below.

mod affinity;
mod ring;
mod server;
mod wire;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags};

use self::affinity::pin;
use crate::model::{RoundTrip, RoundTrips, median};
use crate::mounted::Mounted;
use crate::peer::UringSwitch;
use crate::requests::{Counter, Tracepoints};

pub use server::serve;

/// Measures the available transports on a mount at `at`.
///
/// # Errors
/// Without root or `/dev/fuse`, and when calls turn out not to have reached the server.
pub fn measure(at: &Path, quick: bool, points: Option<Tracepoints>) -> Result<RoundTrips> {
    let dev = transport(at, quick, points, false)?;
    let ring = match UringSwitch::on() {
        Ok(_on) => Some(transport(at, quick, points, true)?),
        Err(_) => None,
    };
    Ok(RoundTrips { dev, ring })
}

/// Measures all three placements on one transport.
fn transport(at: &Path, quick: bool, points: Option<Tracepoints>, rings: bool) -> Result<RoundTrip> {
    let placed = |cores, batches| placement(at, cores, rings, batches, points);
    let batches = if quick { 20 } else { 100 };
    let two = std::thread::available_parallelism()?.get() > 1;
    Ok(RoundTrip {
        same_core_us: placed(Some((0, 0)), batches)?,
        cross_core_us: if two { Some(placed(Some((0, 1)), batches)?) } else { None },
        unpinned_us: placed(None, batches)?,
    })
}

/// Measures one placement: client and server on the given cores, or unpinned.
fn placement(
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
        bail!(
            "only {served:?} of {asked} calls reached the empty server: the measured round trip is not valid"
        );
    }
    median(&times?).context("no batch ran")
}
