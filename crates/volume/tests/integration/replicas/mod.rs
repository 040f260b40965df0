//! Real replicas over a real store and a bad network, in one thread and by one seed.
//!
//! As the simulation of the plan (`tests/sim`), with all there is of a node but its threads: its database, its backing files
//! and its disk, which loses what was not written out. Users change one tree while answers are lost, contents do not
//! arrive, clocks differ, and nodes end at every point at which something lasts. Once all is well again, each content that
//! was promised is in the tree or shown in a conflict; with both sides of each conflict kept, all nodes have one tree, and
//! the volume and all replicas are sound.
//!
//! `SEED=n` runs that one, and `LOG=1` says what happens in it; `SEEDS=n` so many; `TIME=s` goes on for so long from `SEED`
//! on, or from what the file `STATE` says, which is kept.
#![cfg(any(debug_assertions, feature = "fail"))]

mod disk;
mod killed;
mod node;
mod sound;
mod tour;
mod user;
mod world;

use std::time::Duration;

pub use crate::common::seeds::{self, log};
use crate::common::sky::Way;
use disk::Crash;
use parking_lot::Mutex;
use rand::Rng as _;
use shunt_volume::failpoint::{Failpoint, arm, disarm};
use world::World;

/// Points are the process's: who uses them is alone.
pub static ALONE: Mutex<()> = Mutex::new(());

fn run(seed: u64) -> Result<(), String> {
    disarm();
    let count = 2 + seed as usize % 2;
    let mut world = World::new(seed, count);
    let rounds = world.rng.random_range(5..40);
    for _ in 0..rounds {
        let n = world.rng.random_range(0..count);
        if world.rng.random_range(0..12) == 0 {
            let count = world.rng.random_range(0..8);
            world.forget(count)?;
        }
        if world.rng.random_range(0..12) == 0 {
            world.collect(Duration::from_secs(3600))?;
        }
        let cut = world.rng.random_range(0..4) == 0;
        let way = match world.rng.random_range(0..8) {
            0 => Way::Cut,
            1 => Way::Silent,
            _ => Way::Open,
        };
        let bad = world.rng.random_range(0..30);
        world.nodes[n].weather(cut, bad, way);
        let crash = if world.rng.random_range(0..3) == 0 { Crash::Power } else { Crash::Process };
        if world.rng.random_range(0..3) == 0 {
            let point = Failpoint::ALL[world.rng.random_range(0..Failpoint::ALL.len())];
            let nth = world.rng.random_range(1..4);
            log(|| format!("{point:?} fails, {nth}"));
            arm(point, nth);
        }
        world.survive(n, crash, |world| {
            for _ in 0..world.rng.random_range(0..8) {
                let done = world.user(n).act();
                done.map_err(|errno| format!("{}: a user is told {errno}", world.nodes[n].name))?;
                if world.rng.random_range(0..3) == 0 {
                    let done = world.nodes[n].replica().commit();
                    done.map_err(|errno| format!("commit: {errno}"))?;
                    world.user(n).committed();
                }
            }
            for _ in 0..world.rng.random_range(0..4) {
                world.step(n, false)?;
            }
            Ok(())
        })?;
        disarm();
        match world.rng.random_range(0..20) {
            0 => world.crash(n, Crash::Process)?,
            1 => world.crash(n, Crash::Power)?,
            2 => {
                world.user(n).committed();
                world.nodes[n].shut().map_err(|errno| format!("it does not end: {errno}"))?;
                let World { nodes, rng, .. } = &mut world;
                nodes[n].boot(rng).map_err(|error| error.to_string())?;
            }
            _ => sound::check(&world.nodes[n])?,
        }
    }
    world.judge(seed.is_multiple_of(4))
}

#[test]
fn nothing_is_lost_whatever_happens() {
    let _alone = ALONE.lock();
    seeds::each("seeds of replicas", 12, run);
}

/// Files that were not here were emptied when their node ended: zeros of the old length were sent as what somebody wrote. A
/// directory that only a conflict showed came to have a place besides, and two names; so did one of which a machine that
/// lost power had forgotten that it was sent, and from where it was moved then. A directory that was a side of a conflict,
/// and was removed at its place, was forgotten. A directory that moved to below a new one of its name was never sent; nor
/// was what takes the place of a directory that it has to leave first, with another that goes the same way. A directory
/// that got its name in a conflict was still shown as a side of another. What was written to a file that became a new one,
/// as others had removed it, was not known after a crash. One that was removed here while its content was sent, and came
/// back as others had changed it, had the size of what it held before. What a user kept of a conflict was replaced by what
/// his own machine had sent before its power failed, and forgotten.
#[test]
fn what_was_found_stays_mended() {
    let _alone = ALONE.lock();
    for seed in [
        7110, 7159, 7233, 8745, 8933, 30194, 50514, 60161, 80086, 82512, 90882, 97880, 104942, 136054,
        161568, 165179,
    ] {
        run(seed).unwrap_or_else(|error| panic!("SEED={seed}: {error}"));
    }
}
