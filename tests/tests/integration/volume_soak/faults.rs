//! Faults of a round and their times, all determined by the round's seed.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use shunt_tests::Rng;

use crate::volume_soak::cluster::{GATES, NODES, World};
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
enum How {
    Cut(Cut),
    Delay(u64),
    Loss(u64),
    Silence,
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    from: Duration,
    to: Duration,
    how: How,
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
    (Component::Network(GATES[1]), 200, 40),
    (Component::Gateway(1), 150, 20),
];

/// Returns the node that is offline for a whole round and is not killed. Only some rounds have one.
fn leaves(seed: u64) -> Option<usize> {
    seed.is_multiple_of(16).then_some((seed / 16) as usize % NODES.len())
}

/// Minimum duration of such a round: queues that grow while a node is offline have grown.
const LEAVE: Duration = Duration::from_secs(80);

/// Returns the duration of a round with this seed, given the usual one.
pub fn time(seed: u64, usual: Duration) -> Duration {
    if leaves(seed).is_some() { usual.max(LEAVE) } else { usual }
}

/// Returns all faults of one component during a time.
fn plan(seed: u64, number: usize, end: Duration) -> Vec<Fault> {
    let (what, well, ill) = ALL[number];
    match (what, leaves(seed)) {
        (Component::Wish(n), Some(away)) if n == away => {
            return vec![Fault { from: Duration::ZERO, to: end, how: How::Cut(Cut::Drops) }];
        }
        (Component::Node(n), Some(away)) if n == away => return Vec::new(),
        _ => {}
    }
    let mut rng = Rng::new(seed * 100 + number as u64);
    // Similar seeds have similar first numbers.
    rng.bytes(20);
    let mut tenths = |most: usize| Duration::from_millis(rng.below(most * 100) as u64);
    let mut spans = Vec::new();
    let mut from = tenths(well);
    while from < end {
        let to = (from + tenths(ill)).min(end);
        spans.push((from, to));
        from = to + Duration::from_millis(500) + tenths(well);
    }
    let mut how = || match (what, rng.below(3)) {
        (Component::Line(_), 0) => How::Delay(2 + rng.below(60) as u64),
        (Component::Line(_), 1) => How::Loss(5 + rng.below(60) as u64),
        (Component::Line(_), _) => How::Silence,
        (_, 0) => How::Cut(Cut::Down),
        (_, _) => How::Cut(Cut::Drops),
    };
    spans.into_iter().map(|(from, to)| Fault { from, to, how: how() }).collect()
}

/// Executes all faults of a seed, and ends when all components work again.
pub fn run(world: &World, seed: u64, time: Duration) {
    let begun = Instant::now();
    thread::scope(|scope| {
        for (number, (what, ..)) in
            ALL.into_iter().enumerate().filter(|(_, (what, ..))| is_there(world, *what))
        {
            scope.spawn(move || {
                for fault in plan(seed, number, time) {
                    thread::sleep(fault.from.saturating_sub(begun.elapsed()));
                    begin(world, what, fault.how);
                    thread::sleep(fault.to.saturating_sub(begun.elapsed()));
                    end(world, what, fault.how);
                }
            });
        }
        thread::sleep(time.saturating_sub(begun.elapsed()));
    });
}

fn is_there(world: &World, what: Component) -> bool {
    match what {
        Component::Network(machine) => world.has(machine),
        Component::Gateway(gate) => world.has(GATES[gate]),
        _ => true,
    }
}

fn begin(world: &World, what: Component, how: How) {
    let counts = &world.counts;
    match (what, how) {
        (Component::Node(n), _) => {
            world.kill(n);
            counts.killed_nodes.add(1);
        }
        (Component::Network(n), How::Cut(cut)) => {
            world.cut(n, cut);
            counts.partitions.add(1);
        }
        (Component::Line(n), how) => {
            world.tell(format_args!("{}'s line: {how:?}", NODES[n]));
            let weather = world.weather(n);
            match how {
                How::Delay(delay) => weather.delay.store(delay, Ordering::Relaxed),
                How::Loss(loss) => weather.loss.store(loss, Ordering::Relaxed),
                _ => weather.silent.store(true, Ordering::Relaxed),
            }
            counts.bad_lines.add(1);
        }
        (Component::Gateway(gate), _) => {
            world.kill_gateway(gate);
            counts.killed_gateways.add(1);
        }
        (Component::Database, _) => {
            world.tell(format_args!("PostgreSQL is stopped"));
            world.postgres().stop_at_once();
            counts.stopped_databases.add(1);
        }
        (Component::Objects, _) => {
            world.tell(format_args!("the S3 server is killed"));
            world.s3().kill();
            counts.killed_stores.add(1);
        }
        (Component::Wish(n), _) => {
            world.set_online(n, false);
            counts.offline.add(1);
        }
        (Component::Network(_), _) => unreachable!("a network is cut"),
    }
}

fn end(world: &World, what: Component, how: How) {
    match (what, how) {
        (Component::Node(n), _) => world.mount(n),
        (Component::Network(n), How::Cut(cut)) => world.mend(n, cut),
        (Component::Line(n), _) => world.weather(n).be_fair(),
        (Component::Gateway(gate), _) => world.start_gateway(gate),
        (Component::Database, _) => world.postgres().start_again(),
        (Component::Objects, _) => world.s3().start_again(),
        (Component::Wish(n), _) => world.set_online(n, true),
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
