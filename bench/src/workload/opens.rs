//! Repeated opens and closes: descriptors and memory of the daemon may not grow.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Workload;
use crate::context::{Bench, Medium};
use crate::interleave::interleave;
use crate::model::{Row, Sample, Unit};
use crate::peer::Peer;
use crate::peer_mount::{MountSetup, PeerMount};
use crate::process;

pub const WORKLOAD: Workload =
    Workload { name: "opens", about: "100,000 opens and closes: descriptors and memory of the daemon", run };

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let cycles = bench.size(100_000, 5_000);
    let setup = MountSetup {
        medium: Medium::Tmpfs,
        descriptors: None,
        prepare: &|source| Ok(fs::write(source.join("file"), "content")?),
    };
    let peers = [Peer::NATIVE, Peer::BINDFS, Peer::LIBFUSE, Peer::SHUNT];
    let cases =
        [("open-close", Unit::Seconds), ("descriptors-left", Unit::Count), ("kib-grown", Unit::Count)];
    let mut rows = interleave(bench, WORKLOAD.name, &cases, &peers, 1, setup, &mut |mount, _| {
        // Caches and pools of the daemon fill once; that is no leak.
        open_repeatedly(&mount.root, 1000)?;
        let before = descriptors_and_memory(mount)?;
        let time = mount.time(|root| open_repeatedly(root, cycles))?;
        let mut outcomes = vec![("open-close", Ok(time.clone()))];
        if let Some(before) = before {
            // The kernel sends RELEASE asynchronously, after close has returned.
            std::thread::sleep(std::time::Duration::from_millis(200));
            let after = descriptors_and_memory(mount)?.context("the daemon has ended")?;
            let sample = |value| Ok(Sample { value, ..time.clone() });
            outcomes.push(("descriptors-left", sample(after.0 - before.0)));
            outcomes.push(("kib-grown", sample((after.1 - before.1) / 1024.0)));
        }
        Ok(outcomes)
    })?;
    rows[0].works("shunt");
    rows[1].limit("shunt", 0.0);
    rows[2].limit("shunt", 1024.0);
    Ok(rows)
}

fn descriptors_and_memory(mount: &PeerMount) -> Result<Option<(f64, f64)>> {
    if mount.daemon().is_none() {
        return Ok(None);
    }
    let pid = mount.daemon_pid()?;
    Ok(Some((process::descriptors(pid)? as f64, process::resident(pid)? as f64)))
}

fn open_repeatedly(root: &Path, cycles: u32) -> Result<()> {
    let path = root.join("file");
    for at in 0..cycles {
        if at % 1024 == 0 {
            crate::job::check()?;
        }
        drop(fs::File::open(&path).context("open")?);
    }
    Ok(())
}
