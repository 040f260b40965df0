//! The cost of watching the source for writers: one mount at a time, as a watch covers the whole file system.

use anyhow::Result;

use super::Workload;
use crate::context::{Bench, Medium};
use crate::fio::{self, Job};
use crate::job;
use crate::model::{Row, Sample, Unit};
use crate::peer::Peer;
use crate::peer_mount::{MountSetup, PeerMount};
use crate::progress::say;

pub const WORKLOAD: Workload = Workload {
    name: "coherent",
    about: "4 KiB sync writes in the source and through the mount, with and without watching the source, tmpfs",
    run,
};

/// No mount; a mount without a watch; a mount with one.
const PEERS: [Peer; 3] = [Peer::NATIVE, Peer::SHUNT_TIMEOUT, Peer::SHUNT_COHERENT];

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows =
        ["source-write", "mount-write"].map(|case| Row::new(WORKLOAD.name, case, Unit::MebibytesPerSecond));
    for row in &mut rows {
        bench.present(&PEERS).for_each(|peer| _ = row.series_mut(&peer.name()));
    }
    for round in 0..bench.rounds(7) {
        // The peers take turns in going first: the later ones find a warmer machine.
        let mut peers: Vec<Peer> = bench.present(&PEERS).collect();
        let first = round as usize % peers.len();
        peers.rotate_left(first);
        for peer in peers {
            say(format_args!("{}: round {}: {peer}", WORKLOAD.name, round + 1));
            let results = measure(bench, peer);
            job::check()?;
            for (row, result) in rows.iter_mut().zip(results) {
                row.record(&peer.name(), result.map_err(|error| format!("{error:#}")));
            }
        }
    }
    for row in &mut rows {
        row.finish(&bench.round_trips);
        row.at_least("shunt-coherent", 0.95, "shunt-timeout");
    }
    rows[0].at_least("shunt-coherent", 0.95, "native");
    Ok(rows.into())
}

/// Writes in the source while the peer is mounted, then through the mount.
fn measure(bench: &Bench, peer: Peer) -> [Result<Sample>; 2] {
    let size = bench.size(512 << 20, 64 << 20);
    let prepare = |source: &std::path::Path| fio::lay_out(source, fio::FILE, size);
    let setup = MountSetup { medium: Medium::Tmpfs, descriptors: None, prepare: &prepare };
    let mount = match PeerMount::set(bench, peer, setup) {
        Ok(mount) => mount,
        Err(error) => {
            let why = format!("{error:#}");
            return [Err(error), Err(anyhow::anyhow!(why))];
        }
    };
    let job = Job::cached("write", 4096, fio::FILE, size, bench.size(5, 1));
    [job.run_in(&mount, &mount.source), job.run(&mount)]
}
