//! Rounds: every peer does the work once per round, so that a noisy minute hits all of them.

use std::collections::HashMap;

use anyhow::Result;

use crate::bench::Bench;
use crate::job;
use crate::model::{Row, Sample, Unit};
use crate::peer::Peer;
use crate::progress::say;
use crate::stage::{Setting, Stage};

/// What one case of one round gave.
pub type Outcome = (&'static str, Sample);

/// Sets a stage per peer and runs `work` on each, `rounds` times. A peer that fails is left out from
/// then on and its reason kept.
///
/// # Errors
/// When the user interrupts, or native itself fails.
pub fn interleave(
    bench: &Bench,
    workload: &str,
    cases: &[(&'static str, Unit)],
    peers: &[Peer],
    rounds: u32,
    setting: Setting<'_>,
    work: &mut dyn FnMut(&Stage, u32) -> Result<Vec<Outcome>>,
) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = cases.iter().map(|(case, unit)| Row::new(workload, case, *unit)).collect();
    let fail = |rows: &mut Vec<Row>, peer: Peer, error: &anyhow::Error| -> Result<()> {
        job::check()?;
        say(format_args!("{workload}: {peer}: {error:#}"));
        for row in rows {
            row.record(&peer.name(), Err(format!("{error:#}")));
        }
        Ok(())
    };
    for row in &mut rows {
        for peer in bench.present(peers) {
            row.seat(&peer.name());
        }
    }
    let mut stages = Vec::new();
    for peer in bench.present(peers) {
        match Stage::set(bench, peer, setting) {
            Ok(stage) => stages.push(stage),
            Err(error) => fail(&mut rows, peer, &error)?,
        }
    }
    for round in 0..bench.rounds(rounds) {
        let mut failed = Vec::new();
        for (at, stage) in stages.iter().enumerate() {
            say(format_args!("{workload}: round {}: {}", round + 1, stage.peer));
            match work(stage, round) {
                Ok(outcomes) => {
                    let mut outcomes: HashMap<_, _> = outcomes.into_iter().collect();
                    for row in &mut rows {
                        if let Some(sample) = outcomes.remove(row.case.as_str()) {
                            row.record(&stage.peer.name(), Ok(sample));
                        }
                    }
                }
                Err(error) => {
                    fail(&mut rows, stage.peer, &error)?;
                    failed.push(at);
                }
            }
        }
        for at in failed.into_iter().rev() {
            drop(stages.remove(at));
        }
    }
    for row in &mut rows {
        row.finish(bench.round_trip.least());
    }
    Ok(rows)
}
