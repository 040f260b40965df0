//! The daemon's memory per inode that the kernel holds.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use super::Workload;
use crate::context::{Bench, Medium};
use crate::interleave::interleave;
use crate::model::{Row, Sample, Unit};
use crate::peer::Peer;
use crate::peer_mount::{MountSetup, PeerMount};
use crate::{job, process};

pub const WORKLOAD: Workload = Workload {
    name: "memory",
    about: "memory of the daemon per inode after a walk over 1,000,000 files",
    run,
};

const DIRECTORIES: u32 = 1000;

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let files: u32 = bench.size(1_000_000, 50_000);
    let prepare = |source: &Path| make(source, files);
    let setup = MountSetup { medium: Medium::Tmpfs, descriptors: None, prepare: &prepare };
    let peers = [Peer::BINDFS, Peer::LIBFUSE, Peer::SHUNT];
    let cases = [("walk", Unit::Seconds), ("rss", Unit::BytesPerInode)];
    let mut notes = Vec::new();
    // One peer at a time: three trees of a million files do not fit at once.
    let mut rows: Vec<Row> = cases.iter().map(|(case, unit)| Row::new(WORKLOAD.name, case, *unit)).collect();
    for peer in peers {
        let one = interleave(bench, WORKLOAD.name, &cases, &[peer], 1, setup, &mut |mount, _| {
            let (walk, memory) = walk(mount)?;
            if let Ok(stat) = mount.stat() {
                notes.push(format!("statistics of {}: {}", mount.peer, stat.memory));
            }
            Ok(vec![("walk", Ok(walk)), ("rss", Ok(memory))])
        })?;
        for (row, one) in rows.iter_mut().zip(one) {
            row.series.extend(one.series);
        }
    }
    rows[1].notes = notes;
    rows[1].limit("shunt", 160.0);
    Ok(rows)
}

fn make(source: &Path, files: u32) -> Result<()> {
    for directory in 0..DIRECTORIES {
        job::check()?;
        let directory = source.join(format!("directory{directory:04}"));
        fs::create_dir(&directory)?;
        for file in 0..files / DIRECTORIES {
            fs::File::create(directory.join(format!("file{file:04}")))?;
        }
    }
    Ok(())
}

/// Stats every name, so that the kernel holds every inode; returns the time and the daemon's growth per inode.
fn walk(mount: &PeerMount) -> Result<(Sample, Sample)> {
    let pid = mount.daemon_pid()?;
    let before = process::resident(pid)?;
    let inodes_before = process::fuse_inodes();
    let start = Instant::now();
    let walk = mount.time(|root| {
        job::shell(root, "find . -printf '%s %i\\n' | wc -l", &[])?;
        Ok(())
    })?;
    let grown = process::resident(pid)?.saturating_sub(before);
    let inodes =
        inodes_before.zip(process::fuse_inodes()).map(|(before, after)| after.saturating_sub(before));
    let inodes = inodes.context("/proc/slabinfo lacks the count of FUSE inodes")?.max(1);
    let seconds = start.elapsed().as_secs_f64();
    Ok((walk, Sample { value: grown as f64 / inodes as f64, seconds, requests: None }))
}
