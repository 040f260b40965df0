//! GETXATTR requests for `security.capability`: one per write, unless the server handles killing privileges itself.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use super::Workload;
use crate::context::{Bench, Medium};
use crate::interleave::interleave;
use crate::model::{Row, Sample, Unit};
use crate::peer::Peer;
use crate::peer_mount::{MountSetup, PeerMount};
use crate::requests::{Counter, GETXATTR};

pub const WORKLOAD: Workload =
    Workload { name: "killpriv", about: "GETXATTR requests per million writes of 4 KiB", run };

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let writes = bench.size(1_000_000, 50_000);
    let setup = MountSetup { medium: Medium::Tmpfs, descriptors: None, prepare: &|_| Ok(()) };
    let peers = [Peer::BINDFS, Peer::LIBFUSE, Peer::SHUNT, Peer::SHUNT_DAEMON];
    let cases = [("first-write", Unit::Count), ("getxattr", Unit::PerMillion)];
    let mut rows = interleave(bench, WORKLOAD.name, &cases, &peers, 1, setup, &mut |mount, _| {
        // The kernel asks once per inode and caches the answer; the threshold is about requests per write.
        let first = count(bench, mount, 1)?;
        let asked = Sample { value: first.value / 1e6, ..first };
        Ok(vec![("first-write", Ok(asked)), ("getxattr", count(bench, mount, writes))])
    })?;
    rows[1].limit("shunt", 0.0);
    rows[1].limit("shunt-nopt", 0.0);
    Ok(rows)
}

fn count(bench: &Bench, mount: &PeerMount, writes: u32) -> Result<Sample> {
    let points = bench.tracepoints.context("cannot count requests on this kernel")?;
    let daemon = mount.daemon().context("native has no daemon")?;
    let counter = Counter::of(points, daemon.connection(), GETXATTR)?;
    let shunt_before = shunt_count(mount);
    let before = mount.requests();
    let start = Instant::now();
    write(&mount.root.join("written"), writes)?;
    let seconds = start.elapsed().as_secs_f64();
    let requests = before.zip(mount.requests()).map(|(before, after)| after - before);
    // Two independent counts; the larger one is used.
    let shunt = shunt_count(mount).saturating_sub(shunt_before);
    Ok(Sample { value: counter.read()?.max(shunt) as f64 * 1e6 / f64::from(writes), seconds, requests })
}

/// Shunt's own count; 0 on other peers.
fn shunt_count(mount: &PeerMount) -> u64 {
    mount.stat().map_or(0, |stat| stat.count("getxattr"))
}

fn write(path: &Path, writes: u32) -> Result<()> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    let block = [7; 4096];
    for at in 0..writes {
        if at % 1024 == 0 {
            crate::job::check()?;
        }
        // Within 16 MiB, over and over: only the number of writes matters.
        file.write_all_at(&block, u64::from(at % 4096) * 4096)?;
    }
    Ok(())
}
