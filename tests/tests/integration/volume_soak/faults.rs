//! Faults of a round and their times, all determined by the round's seed.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use shunt_tests::Rng;

use crate::volume_soak::cluster::{Cluster, GATEWAYS, NODES};
use crate::volume_soak::netns::Cut;

/// A component that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Component {
    Node(usize),
    Network(usize),
    Line(usize),
    Gateway(usize),
    Database,
    Objects,
    /// A node that its user sets offline.
    Wish(usize),
}

/// Kind of fault, if there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    Cut(Cut),
    Delay(u64),
    Loss(u64),
    Silence,
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    from: Duration,
    to: Duration,
    how: FaultKind,
}

/// Each component, with the maximum time between two faults and the maximum duration of a fault, in tenths of a second.
const ALL: [(Component, usize, usize); 18] = [
    (Component::Node(0), 120, 15),
    (Component::Node(1), 120, 15),
    (Component::Node(2), 120, 15),
    (Component::Network(0), 100, 60),
    (Component::Network(1), 100, 60),
    (Component::Network(2), 100, 60),
    (Component::Network(3), 200, 40),
    (Component::Line(0), 80, 40),
    (Component::Line(1), 80, 40),
    (Component::Line(2), 80, 40),
    (Component::Gateway(0), 150, 20),
    (Component::Database, 200, 30),
    (Component::Objects, 200, 30),
    (Component::Wish(0), 200, 50),
    (Component::Wish(1), 200, 50),
    (Component::Wish(2), 200, 50),
    (Component::Network(GATEWAYS[1]), 200, 40),
    (Component::Gateway(1), 150, 20),
];

/// Returns the node that is offline for a whole round and is not killed. Only some rounds have one.
fn leaves(seed: u64) -> Option<usize> {
    seed.is_multiple_of(16).then_some((seed / 16) as usize % NODES.len())
}

/// Minimum duration of such a round: queues that grow while a node is offline have grown.
const OFFLINE_TIME: Duration = Duration::from_secs(80);

/// Returns the duration of a round with this seed, given the usual one.
pub fn time(seed: u64, usual: Duration) -> Duration {
    if leaves(seed).is_some() { usual.max(OFFLINE_TIME) } else { usual }
}

/// Returns all faults of one component during a time.
fn plan(seed: u64, number: usize, end: Duration) -> Vec<Fault> {
    let (what, well, ill) = ALL[number];
    match (what, leaves(seed)) {
        (Component::Wish(n), Some(away)) if n == away => {
            return vec![Fault { from: Duration::ZERO, to: end, how: FaultKind::Cut(Cut::Drops) }];
        }
        (Component::Node(n), Some(away)) if n == away => return Vec::new(),
        _ => {}
    }
    let mut rng = Rng::new(seed * 100 + number as u64);
    // Similar seeds have similar first numbers.
    rng.bytes(20);
    let mut tenths = |limit: usize| Duration::from_millis(rng.below(limit * 100) as u64);
    let mut spans = Vec::new();
    let mut from = tenths(well);
    while from < end {
        let to = (from + tenths(ill)).min(end);
        spans.push((from, to));
        from = to + Duration::from_millis(500) + tenths(well);
    }
    let mut how = || match (what, rng.below(3)) {
        (Component::Line(_), 0) => FaultKind::Delay(2 + rng.below(60) as u64),
        (Component::Line(_), 1) => FaultKind::Loss(5 + rng.below(60) as u64),
        (Component::Line(_), _) => FaultKind::Silence,
        (_, 0) => FaultKind::Cut(Cut::Down),
        (_, _) => FaultKind::Cut(Cut::Drops),
    };
    spans.into_iter().map(|(from, to)| Fault { from, to, how: how() }).collect()
}

/// Executes all faults of a seed, and ends when all components work again.
pub fn run(cluster: &Cluster, seed: u64, time: Duration) {
    let begun = Instant::now();
    thread::scope(|scope| {
        for (number, (what, ..)) in
            ALL.into_iter().enumerate().filter(|(_, (what, ..))| is_there(cluster, *what))
        {
            scope.spawn(move || {
                for fault in plan(seed, number, time) {
                    thread::sleep(fault.from.saturating_sub(begun.elapsed()));
                    begin(cluster, what, fault.how);
                    thread::sleep(fault.to.saturating_sub(begun.elapsed()));
                    end(cluster, what, fault.how);
                }
            });
        }
        thread::sleep(time.saturating_sub(begun.elapsed()));
    });
}

fn is_there(cluster: &Cluster, what: Component) -> bool {
    match what {
        Component::Network(machine) => cluster.has(machine),
        Component::Gateway(gate) => cluster.has(GATEWAYS[gate]),
        _ => true,
    }
}

fn begin(cluster: &Cluster, what: Component, how: FaultKind) {
    let counts = &cluster.counts;
    match (what, how) {
        (Component::Node(n), _) => {
            cluster.kill(n);
            counts.killed_nodes.add(1);
        }
        (Component::Network(n), FaultKind::Cut(cut)) => {
            cluster.cut(n, cut);
            counts.partitions.add(1);
        }
        (Component::Line(n), how) => {
            cluster.log(format_args!("{}'s line: {how:?}", NODES[n]));
            let link_faults = cluster.link_faults(n);
            match how {
                FaultKind::Delay(delay) => link_faults.delay.store(delay, Ordering::Relaxed),
                FaultKind::Loss(loss) => link_faults.loss.store(loss, Ordering::Relaxed),
                _ => link_faults.silent.store(true, Ordering::Relaxed),
            }
            counts.bad_lines.add(1);
        }
        (Component::Gateway(gate), _) => {
            cluster.kill_gateway(gate);
            counts.killed_gateways.add(1);
        }
        (Component::Database, _) => {
            cluster.log(format_args!("PostgreSQL is stopped"));
            cluster.postgres().stop_at_once();
            counts.stopped_databases.add(1);
        }
        (Component::Objects, _) => {
            cluster.log(format_args!("the S3 server is killed"));
            cluster.s3().kill();
            counts.killed_stores.add(1);
        }
        (Component::Wish(n), _) => {
            cluster.set_online(n, false);
            counts.offline.add(1);
        }
        (Component::Network(_), _) => unreachable!("a network is cut"),
    }
}

fn end(cluster: &Cluster, what: Component, how: FaultKind) {
    match (what, how) {
        (Component::Node(n), _) => cluster.mount(n),
        (Component::Network(n), FaultKind::Cut(cut)) => cluster.mend(n, cut),
        (Component::Line(n), _) => cluster.link_faults(n).be_fair(),
        (Component::Gateway(gate), _) => cluster.start_gateway(gate),
        (Component::Database, _) => cluster.postgres().start_again(),
        (Component::Objects, _) => cluster.s3().start_again(),
        (Component::Wish(n), _) => cluster.set_online(n, true),
        (Component::Network(_), _) => unreachable!("a network is cut"),
    }
}

#[test]
fn a_seed_has_the_same_go_wrong() {
    let all = |seed| {
        format!("{:?}", (0..ALL.len()).map(|n| plan(seed, n, Duration::from_secs(60))).collect::<Vec<_>>())
    };
    assert_eq!(all(1), all(1));
    assert_ne!(all(1), all(2));
}
