//! Repeated mounts and unmounts: no mount, connection or process may stay behind.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Workload;
use crate::context::{Bench, Medium};
use crate::model::{Row, Sample, Unit};
use crate::peer::{Peer, Program};
use crate::progress::say;
use crate::{job, mounted, process};

pub const WORKLOAD: Workload =
    Workload { name: "mounts", about: "10,000 cycles of mount, lookup and unmount", run };

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let cycles = bench.size(10_000, 50);
    let mut time = Row::new(WORKLOAD.name, "mount-umount", Unit::Seconds);
    let mut left = Row::new(WORKLOAD.name, "left-behind", Unit::Count);
    let source = bench.source_dir(Medium::Tmpfs).join("mounts");
    fs::create_dir_all(&source)?;
    fs::write(source.join("file"), "content")?;
    for peer in bench.present(&[Peer::LIBFUSE, Peer::SHUNT]) {
        if peer.program == Program::Native {
            continue;
        }
        match mount_repeatedly(bench, peer, &source, cycles) {
            Ok((seconds, remains)) => {
                time.record(&peer.name(), Ok(Sample { value: seconds, seconds, requests: None }));
                left.record(&peer.name(), Ok(Sample { value: remains as f64, seconds, requests: None }));
            }
            Err(error) => {
                job::check()?;
                say(format_args!("mounts: {peer}: {error:#}"));
                time.record(&peer.name(), Err(format!("{error:#}")));
            }
        }
    }
    fs::remove_dir_all(&source)?;
    for row in [&mut time, &mut left] {
        row.finish(&bench.round_trips);
    }
    time.works("shunt");
    left.limit("shunt", 0.0);
    Ok(vec![time, left])
}

/// Seconds for all cycles, and the number of mounts and processes left behind.
fn mount_repeatedly(bench: &Bench, peer: Peer, source: &Path, cycles: u32) -> Result<(f64, usize)> {
    let at = bench.mount_point(peer);
    let program = bench.programs.path(peer.program).context("the peer is not there")?;
    let count = || mounted::table().len() + process::running(program);
    let before = count();
    let start = std::time::Instant::now();
    for cycle in 0..cycles {
        if cycle % 1000 == 0 {
            say(format_args!("mounts: {peer}: {cycle} of {cycles}"));
        }
        job::check()?;
        let mounted = bench.programs.start(peer, source, &at, None)?;
        let found = fs::metadata(at.join("file"));
        mounted.end()?;
        found.with_context(|| format!("look up a file in mount {cycle}"))?;
    }
    let seconds = start.elapsed().as_secs_f64();
    // A guardian may end a moment after its daemon.
    std::thread::sleep(std::time::Duration::from_millis(500));
    Ok((seconds, count().saturating_sub(before)))
}
