//! Simulation of real replicas over a real store and an unreliable network, in one thread and from one seed.
//!
//! Like the simulation of the merge (`merge_simulation`), but with all parts of a node except its threads: its database, its backing
//! files and its disk, which loses unsynced data. Users change one tree while replies are lost, contents do not arrive, clocks
//! differ, and nodes end at every failpoint. Once all failures are over, each promised content is in the tree or shown in a
//! conflict. With both sides of each conflict kept, all nodes have the same tree, and the volume and all replicas are
//! consistent.
//!
//! `SEED=n` runs one seed, and `LOG=1` logs its events; `SEEDS=n` sets the number of seeds; with `TIME=s` the run continues for
//! that many seconds from `SEED` on, or from the seed in the file `STATE`, which is updated.
#![cfg(any(debug_assertions, feature = "fail"))]

mod cluster;
mod failpoint_sweep;
mod invariants;
mod node;
mod power_fail_disk;
mod process_kill;
mod user;

use std::time::Duration;

use crate::common::faulty_object_store::NetworkMode;
pub use crate::common::seed_loop::{self, log};
use cluster::Cluster;
use parking_lot::Mutex;
use power_fail_disk::Crash;
use rand::RngExt as _;
use shunt_volume::failpoint::{Failpoint, arm, disarm};

/// Serialises the tests, because failpoints are global to the process.
pub static ALONE: Mutex<()> = Mutex::new(());

fn run(seed: u64) -> Result<(), String> {
    disarm();
    let count = 2 + seed as usize % 2;
    let mut cluster = Cluster::new(seed, count);
    let rounds = cluster.rng.random_range(5..40);
    for _ in 0..rounds {
        let n = cluster.rng.random_range(0..count);
        if cluster.rng.random_range(0..12) == 0 {
            let count = cluster.rng.random_range(0..8);
            cluster.forget(count)?;
        }
        if cluster.rng.random_range(0..12) == 0 {
            cluster.collect(Duration::from_secs(3600))?;
        }
        let cut = cluster.rng.random_range(0..4) == 0;
        let way = match cluster.rng.random_range(0..8) {
            0 => NetworkMode::Cut,
            1 => NetworkMode::Silent,
            _ => NetworkMode::Open,
        };
        let bad = cluster.rng.random_range(0..30);
        cluster.nodes[n].set_faults(cut, bad, way);
        let crash = if cluster.rng.random_range(0..3) == 0 { Crash::Power } else { Crash::Process };
        if cluster.rng.random_range(0..3) == 0 {
            let point = Failpoint::ALL[cluster.rng.random_range(0..Failpoint::ALL.len())];
            let nth = cluster.rng.random_range(1..4);
            log(|| format!("{point:?} fails, {nth}"));
            arm(point, nth);
        }
        cluster.survive(n, crash, |cluster| {
            for _ in 0..cluster.rng.random_range(0..8) {
                let done = cluster.user(n).act();
                done.map_err(|errno| format!("{}: a user gets {errno}", cluster.nodes[n].name))?;
                if cluster.rng.random_range(0..3) == 0 {
                    let done = cluster.nodes[n].replica().commit();
                    done.map_err(|errno| format!("commit: {errno}"))?;
                    cluster.user(n).committed();
                }
            }
            for _ in 0..cluster.rng.random_range(0..4) {
                cluster.step(n, false)?;
            }
            Ok(())
        })?;
        disarm();
        match cluster.rng.random_range(0..20) {
            0 => cluster.crash(n, Crash::Process)?,
            1 => cluster.crash(n, Crash::Power)?,
            2 => {
                cluster.user(n).committed();
                cluster.nodes[n].shut().map_err(|errno| format!("it does not end: {errno}"))?;
                let Cluster { nodes, rng, .. } = &mut cluster;
                nodes[n].boot(rng).map_err(|error| error.to_string())?;
            }
            _ => invariants::check(&cluster.nodes[n])?,
        }
    }
    cluster.judge(seed.is_multiple_of(4))
}

#[test]
fn random_schedules_lose_no_data() {
    let _alone = ALONE.lock();
    seed_loop::each("seeds of replicas", 12, run);
}

/// Bugs that these seeds found: Files without local content were truncated when their node ended, and zeros of the old length
/// were pushed as a user's write. A directory shown only by a conflict got a second place, and two names; so did one of which a
/// node that lost power had forgotten that it was pushed, and that was then moved. A directory that was a side of a conflict,
/// and was removed at its place, was forgotten. A directory that moved below a new one of its own name was never pushed; nor
/// was an object that replaces a directory which has to leave first, with another that goes the same way. A directory that got
/// its name in a conflict was still shown as a side of another. Writes to a file that became a new one, because others had
/// removed it, were forgotten after a crash. A file that was removed locally while its content was uploaded, and restored by a
/// remote change, had the size of its previous content. The side of a conflict that a user kept was replaced by the version
/// that the user's own node had pushed before a power failure, and forgotten.
#[test]
fn regressions_stay_fixed() {
    let _alone = ALONE.lock();
    for seed in [
        7110, 7159, 7233, 8745, 8933, 30194, 50514, 60161, 80086, 82512, 90882, 97880, 104942, 136054,
        161568, 165179,
    ] {
        run(seed).unwrap_or_else(|error| panic!("SEED={seed}: {error}"));
    }
}
