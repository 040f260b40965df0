//! Soak test: a volume on three nodes with networks of their own, which are cut, slow, and silent while users work; daemons,
//! gateways, PostgreSQL and an S3 server are killed. Once all components work again, no synced data may be lost, all nodes must
//! show the same tree, and the volume must be consistent.
//!
//! `make volume-soak TIME=30m` runs many rounds.

mod block_layout;
mod cluster;
mod coverage;
mod durability_ledger;
mod faults;
mod final_checks;
mod netns;
mod proxy;
mod silent_connection;
mod slow_link;
mod tagged_content;
mod user;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shunt_test_support::{needs_mount, needs_tools, skip};

use cluster::{Cluster, lock};
use coverage::Coverage;
use user::User;

/// Runs a round: some seconds of work under faults, and then the checks.
fn round(cluster: &Cluster, seed: u64, time: Duration) -> Result<(), String> {
    cluster.log(format_args!("round {seed}"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for node in 0..cluster.nodes.len() {
            let stop = &stop;
            scope.spawn(move || User::new(cluster, node, seed).work(stop));
        }
        faults::run(cluster, seed, faults::time(seed, time));
        stop.store(true, Ordering::Relaxed);
    });
    let judged = final_checks::judge(cluster, seed.is_multiple_of(8));
    cluster.look_after();
    cluster.counts.rounds.add(1);
    let mut wrong = std::mem::take(&mut *lock(&cluster.wrong));
    wrong.extend(judged.err());
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Number of rounds with one volume, before another is created behind the other number of gateways.
const ROUNDS_PER_CLUSTER: u64 = 8;

/// Runs rounds of `each` for `time` in total. `good` is called after each successful round.
fn rounds(first: u64, time: Duration, each: Duration, good: impl Fn(u64, &Coverage)) {
    needs_mount!();
    needs_tools!("ip", "nft");
    let (begun, counts) = (Instant::now(), Arc::new(Coverage::default()));
    let mut seed = first;
    loop {
        let Some(cluster) = Cluster::new(&counts, gateways(seed)) else {
            skip::skip("no PostgreSQL or versitygw (run tests/setup)");
            return;
        };
        for _ in 0..ROUNDS_PER_CLUSTER {
            if let Err(wrong) = round(&cluster, seed, each) {
                panic!("{counts}\nround {seed}, kept in {}: {wrong}", cluster.path("").display());
            }
            good(seed, &counts);
            if begun.elapsed() >= time {
                return;
            }
            seed += 1;
        }
    }
}

fn gateways(seed: u64) -> usize {
    if (seed / ROUNDS_PER_CLUSTER).is_multiple_of(2) { 1 } else { 2 }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn a_round_loses_nothing() {
    rounds(1, Duration::ZERO, Duration::from_secs(8), |_, counts| println!("{counts}"));
}

/// A round with two gateways, one behind the other.
#[test]
fn a_round_behind_two_gateways_loses_nothing() {
    rounds(ROUNDS_PER_CLUSTER, Duration::ZERO, Duration::from_secs(8), |_, counts| println!("{counts}"));
}

/// `SEED` is the first seed, `SHUNT_SOAK_STATE` a file for the next one.
#[test]
#[ignore = "goes on for as long as one likes: make volume-soak"]
fn rounds_without_end() {
    let time = Duration::from_secs(variable("SHUNT_SOAK_SECONDS").unwrap_or(60));
    let each = Duration::from_secs(variable("SHUNT_SOAK_ROUND").unwrap_or(20));
    rounds(variable("SEED").unwrap_or(1), time, each, |seed, counts| {
        println!("volume-soak: seed {seed}, {counts}");
        if let Some(state) = std::env::var_os("SHUNT_SOAK_STATE") {
            std::fs::write(state, (seed + 1).to_string()).expect("the next seed");
        }
    });
}
