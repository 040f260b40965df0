//! Rounds: every peer runs the workload once per round, so that a noisy minute affects all of them.

use std::fmt::Display;

use anyhow::Result;

use crate::context::Bench;
use crate::job;
use crate::model::{Row, Sample, Unit};
use crate::peer::Peer;
use crate::peer_mount::{MountSetup, PeerMount};
use crate::progress::say;

/// The result of one case in one round. A case may be left out.
pub type Outcome = (&'static str, Result<Sample>);

/// Sets up a mount per peer and runs `work` on each, `rounds` times. A peer that fails is left out from then on, and its error is
/// kept.
///
/// # Errors
/// When the user interrupts, or native itself fails.
pub fn interleave(
    bench: &Bench,
    workload: &str,
    cases: &[(&'static str, Unit)],
    peers: &[Peer],
    rounds: u32,
    setup: MountSetup<'_>,
    work: &mut dyn FnMut(&PeerMount, u32) -> Result<Vec<Outcome>>,
) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = cases.iter().map(|(case, unit)| Row::new(workload, case, *unit)).collect();
    for row in &mut rows {
        for peer in bench.present(peers) {
            row.series_mut(&peer.name());
        }
    }
    let mut mounts = Vec::new();
    for peer in bench.present(peers) {
        match PeerMount::set(bench, peer, setup) {
            Ok(mount) => mounts.push(mount),
            Err(error) => fail(&mut rows, peer, &error)?,
        }
    }
    for round in 0..bench.rounds(rounds) {
        let mut remaining = Vec::with_capacity(mounts.len());
        for mount in mounts {
            say(format_args!("{workload}: round {}: {}", round + 1, mount.peer));
            let outcomes = work(&mount, round);
            job::check()?;
            match outcomes {
                Ok(outcomes) => {
                    if record(&mut rows, mount.peer, outcomes) {
                        remaining.push(mount);
                    }
                }
                Err(error) => fail(&mut rows, mount.peer, &error)?,
            }
        }
        mounts = remaining;
    }
    for row in &mut rows {
        row.finish(&bench.round_trips);
    }
    Ok(rows)
}

/// Records one error of a peer in every row.
///
/// # Errors
/// When the user interrupts.
pub fn fail(rows: &mut [Row], peer: impl Display, error: &anyhow::Error) -> Result<()> {
    job::check()?;
    say(format_args!("{peer}: {error:#}"));
    for row in rows {
        row.record(&peer.to_string(), Err(format!("{error:#}")));
    }
    Ok(())
}

/// Records each case; returns false when one failed.
fn record(rows: &mut [Row], peer: Peer, outcomes: Vec<Outcome>) -> bool {
    let mut complete = true;
    for (case, result) in outcomes {
        let result = result.map_err(|error| format!("{error:#}"));
        if let Err(error) = &result {
            say(format_args!("{peer}: {case}: {error}"));
            complete = false;
        }
        if let Some(row) = rows.iter_mut().find(|row| row.case == case) {
            row.record(&peer.name(), result);
        }
    }
    complete
}
