//! Many nodes on one volume, and many volumes over several databases.
//!
//! The nodes are simulated by their requests to the store: each commits a change at an interval. Load is offered at a fixed rate,
//! whether or not the store keeps up, and the latency of an answer counts from when the request was due, so that a store that
//! falls behind shows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use shunt_test_support::servers::Postgres;
use shunt_volume::address::MetaAddress;
use shunt_volume::address::routing;
use shunt_volume::id::{NodeName, ObjectId, VolumeName};
use shunt_volume::object::{Kind, LinkName};
use shunt_volume::store::{MetaStore, Mutation, PostgresStore, Transaction};

use super::Workload;
use crate::context::{Bench, Medium};
use crate::engine;
use crate::job;
use crate::model::{Row, Sample, Unit};
use crate::progress::say;

pub const WORKLOAD: Workload = Workload {
    name: "volume-load",
    about: "1,000 simulated nodes on one volume, and 100 volumes on 4 PostgreSQL servers: rate and slowest replies",
    run,
};

/// The interval at which a node makes a file.
const COMMIT_INTERVAL: Duration = Duration::from_secs(10);
/// Concurrent requests.
const WORKERS: usize = 24;
const SERVERS: usize = 4;
/// The fraction of the offered load that must be carried: throughput is linear in load.
const MIN_CARRIED_RATIO: f64 = 0.95;

struct Load {
    offered: f64,
    carried: f64,
    /// Latencies in seconds, sorted.
    answers: Vec<f64>,
}

impl Load {
    fn quantile(&self, part: f64) -> f64 {
        let index = (self.answers.len() as f64 * part) as usize;
        self.answers.get(index.min(self.answers.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let seconds = bench.size(10, 2);
    let mut rows = Vec::new();
    {
        let server = start()?;
        let name: VolumeName = "bench".parse().ok().context("invalid volume name")?;
        let store: Arc<dyn MetaStore> =
            Arc::new(PostgresStore::create(&server.address(), &name, &engine::root(), b"")?);
        for nodes in bench.size(&[250, 500, 1000, 4000][..], &[100][..]) {
            say(format_args!("{}: {nodes} nodes on one volume", WORKLOAD.name));
            let load = offer(*nodes, seconds, &|_| &store)?;
            report(&mut rows, &format!("{nodes}-nodes"), &load, *nodes <= 1000);
        }
    }
    let servers = (0..SERVERS).map(|_| start()).collect::<Result<Vec<_>>>()?;
    let max_volumes: usize = bench.size(100, 8);
    let stores = spread(bench, &servers, max_volumes)?;
    for volumes in [max_volumes / 4, max_volumes / 2, max_volumes] {
        say(format_args!("{}: {volumes} volumes on {SERVERS} servers", WORKLOAD.name));
        // Ten nodes per volume.
        let load = offer(volumes * 10, seconds, &|node| &stores[node % volumes])?;
        report(&mut rows, &format!("{volumes}-volumes"), &load, true);
    }
    for row in &mut rows {
        row.finish(&bench.round_trips);
    }
    for row in &mut rows {
        if row.case.ends_with("-rate") && row.series.iter().any(|series| series.peer == JUDGED) {
            row.at_least(JUDGED, MIN_CARRIED_RATIO, OFFERED);
        }
    }
    Ok(rows)
}

const OFFERED: &str = "offered";
/// The series of a load that must be carried.
const JUDGED: &str = "shunt";
/// The series of a load beyond that, which only informs.
const UNJUDGED: &str = "shunt-beyond";

fn report(rows: &mut Vec<Row>, case: &str, load: &Load, judged: bool) {
    let peer = if judged { JUDGED } else { UNJUDGED };
    let sample = |value| Ok(Sample { value, seconds: 0.0, requests: None });
    let mut rate = Row::new(WORKLOAD.name, &format!("{case}-rate"), Unit::PerSecond);
    rate.record(OFFERED, sample(load.offered));
    rate.record(peer, sample(load.carried));
    rows.push(rate);
    for (part, name) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")] {
        let mut row = Row::new(WORKLOAD.name, &format!("{case}-{name}"), Unit::Seconds);
        row.record(peer, sample(load.quantile(part)));
        rows.push(row);
    }
}

fn start() -> Result<Postgres> {
    match Postgres::start(true) {
        Some(server) => Ok(server),
        None => bail!("PostgreSQL is not installed; run tests/setup"),
    }
}

/// Distributes volumes over servers round-robin; a routing file maps each volume to its server.
fn spread(bench: &Bench, servers: &[Postgres], count: usize) -> Result<Vec<Arc<dyn MetaStore>>> {
    let home = tempfile::tempdir_in(bench.source_dir(Medium::Disk))?;
    let file = home.path().join("map");
    let lines = (0..count).map(|n| format!("v{n} = {}\n", servers[n % servers.len()].address()));
    std::fs::write(&file, lines.collect::<String>())?;
    let mut stores: Vec<Arc<dyn MetaStore>> = Vec::new();
    for n in 0..count {
        job::check()?;
        let name: VolumeName = format!("v{n}").parse().ok().context("invalid volume name")?;
        let MetaAddress::Postgres(address) = routing::find(&file, &name)? else {
            bail!("the routing file has no PostgreSQL address for the volume")
        };
        stores.push(Arc::new(PostgresStore::create(&address, &name, &engine::root(), b"")?));
    }
    Ok(stores)
}

/// Offers the load of these nodes, a file per node and interval, for some seconds.
fn offer<'a>(
    nodes: usize,
    seconds: u64,
    store: &(dyn Fn(usize) -> &'a Arc<dyn MetaStore> + Sync),
) -> Result<Load> {
    let total = nodes * seconds as usize / COMMIT_INTERVAL.as_secs() as usize;
    let step = Duration::from_secs(seconds).div_f64(total.max(1) as f64);
    let names: Vec<NodeName> = (0..nodes)
        .map(|n| format!("node{n}").parse().ok().context("invalid node name"))
        .collect::<Result<_>>()?;
    let next = AtomicUsize::new(0);
    let begun = Instant::now();
    let work = || -> Result<Vec<f64>> {
        let mut answers = Vec::new();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= total {
                return Ok(answers);
            }
            job::check()?;
            let due = begun + step.mul_f64(n as f64);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let node = n % nodes;
            let answer = store(node).commit(&names[node], rand::random(), &[file()])?;
            ensure!(answer.iter().all(Result::is_ok), "the store rejected a new file");
            answers.push(due.elapsed().as_secs_f64());
        }
    };
    let answers = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::with_capacity(total);
        for worker in workers {
            all.extend(worker.join().ok().context("a worker thread panicked")??);
        }
        Ok::<_, anyhow::Error>(all)
    });
    let mut answers = answers?;
    answers.sort_by(f64::total_cmp);
    let took = begun.elapsed().as_secs_f64().max(seconds as f64);
    Ok(Load { offered: total as f64 / seconds as f64, carried: answers.len() as f64 / took, answers })
}

fn file() -> Transaction {
    let id: u128 = rand::random();
    let at = LinkName { parent: ObjectId::ROOT, name: format!("{id:032x}").into_bytes() };
    let made = Mutation::Make(engine::object(id, Kind::Regular));
    Transaction { mutations: vec![made, Mutation::Link(at, ObjectId(id))], ..Transaction::default() }
}
