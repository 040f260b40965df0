//! Failpoint sweep: a sequence of all operations of nodes, which ends once at each failpoint.

use std::time::Duration;

use shunt_volume::failpoint::{Failpoint, arm, disarm};
use shunt_volume::id::OwnerId;
use shunt_volume::object::Kind;
use shunt_volume::replica::{NewObject, ROOT, Rename};

use crate::replica_simulation::cluster::{Cluster, litter};
use crate::replica_simulation::power_fail_disk::Crash;

type Work = fn(&mut Cluster) -> Result<(), String>;

fn failed(errno: rustix::io::Errno) -> String {
    errno.to_string()
}

fn make(cluster: &mut Cluster, n: usize, name: &str, kind: Kind) -> Result<u64, String> {
    let new = NewObject { kind, mode: 0o700, owner: OwnerId(0), group: OwnerId(0), target: b"" };
    let replica = cluster.nodes[n].replica();
    match replica.lookup(ROOT, name.as_bytes()) {
        // Created before the crash.
        Ok(node) => Ok(node.ino),
        Err(_) => replica.make(ROOT, name.as_bytes(), new).map(|node| node.ino).map_err(failed),
    }
}

fn write(cluster: &mut Cluster, n: usize, name: &str, truncate: bool) -> Result<(), String> {
    let num = make(cluster, n, name, Kind::Regular)?;
    cluster.user(n).write(num, truncate).map_err(failed)?;
    cluster.user(n).sync_file(num).map_err(failed)
}

/// Steps of the sequence: the node that executes each, and its work.
const TOUR: &[(usize, Work)] = &[
    (0, |cluster| {
        make(cluster, 0, "directory", Kind::Directory)?;
        // Of all lengths: some are packed together.
        (0..16).try_for_each(|n| write(cluster, 0, &format!("file{n}"), false))
    }),
    (0, |cluster| cluster.settle_one(0)),
    (1, |cluster| cluster.settle_one(1)),
    (1, |cluster| cluster.read_all(1)),
    (1, |cluster| {
        // The content is fetched and fsynced before the write.
        (8..16).try_for_each(|n| write(cluster, 1, &format!("file{n}"), true))
    }),
    (0, |cluster| {
        (6..10).try_for_each(|n| write(cluster, 0, &format!("file{n}"), false))?;
        let moved = cluster.nodes[0].replica().rename(ROOT, b"file0", ROOT, b"moved", Rename::Replace);
        moved
            .map(drop)
            .or_else(|errno| if errno == rustix::io::Errno::NOENT { Ok(()) } else { Err(failed(errno)) })
    }),
    (1, |cluster| cluster.settle_one(1)),
    (0, |cluster| cluster.settle_one(0)),
    (0, |cluster| cluster.nodes[0].replica().evict(u64::MAX).map(drop).map_err(failed)),
    (0, |cluster| cluster.read_all(0)),
    (1, |cluster| {
        let place = cluster.nodes[1].places().map_err(failed)?;
        let place = place.into_iter().find(|place| place.name == b"file1");
        place.map_or(Ok(()), |place| cluster.user(1).remove(&place).map_err(failed))?;
        cluster.nodes[1].replica().sync().map_err(failed)?;
        cluster.nodes[1].replica().reap(100).map(drop).map_err(failed)
    }),
    (1, |cluster| {
        cluster.nodes[1].shut().map_err(failed)?;
        let Cluster { nodes, rng, .. } = cluster;
        nodes[1].boot(rng).map_err(|error| error.to_string())
    }),
    (1, |cluster| {
        write(cluster, 1, "file2", true)?;
        cluster.settle_one(1)?;
        cluster.forget(0)
    }),
    (0, |cluster| {
        write(cluster, 0, "file3", true)?;
        cluster.settle_one(0)
    }),
    // Collection without a grace period frees uploads that are not committed, so no node may have any in flight, including one
    // that ended before its push.
    (0, |cluster| cluster.settle_one(0)),
    (1, |cluster| cluster.settle_one(1)),
    (0, |cluster| cluster.settle_one(0)),
    (1, |cluster| cluster.settle_one(1)),
    (1, |cluster| {
        (0..3).try_for_each(|_| {
            cluster.forget(0)?;
            cluster.collect(Duration::ZERO)
        })
    }),
];

impl Cluster {
    fn settle_one(&mut self, n: usize) -> Result<(), String> {
        for _ in 0..20 {
            let step = self.step(n, true)?;
            if !step.more && step.sent == 0 {
                return Ok(());
            }
        }
        Err("there is no end".into())
    }

    fn read_all(&mut self, n: usize) -> Result<(), String> {
        for place in self.nodes[n].places().map_err(failed)? {
            if place.node.is_regular() {
                self.nodes[n].read(place.node.ino).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// Runs the sequence with a failpoint armed. Returns whether it was reached that often.
fn ends_at(point: Failpoint, nth: u32, crash: Crash) -> Result<bool, String> {
    disarm();
    // Nodes never read the whole tree of a volume with a sealed log.
    let seed = if matches!(point, Failpoint::TreeRead | Failpoint::TreeApplied) { 0 } else { point as u64 };
    let mut cluster = Cluster::new(seed, 2);
    litter(&cluster.volume, &[27, 29]);
    arm(point, nth);
    let mut ended = false;
    for (n, work) in TOUR {
        ended |= cluster.survive(*n, crash, work)?;
    }
    disarm();
    cluster.judge(true)?;
    Ok(ended)
}

#[test]
fn nodes_may_end_at_every_point() {
    let _alone = crate::replica_simulation::ALONE.lock();
    let mut failures = Vec::new();
    for &point in Failpoint::ALL {
        for crash in [Crash::Process, Crash::Power] {
            match ends_at(point, 1, crash) {
                Ok(true) => {}
                Ok(false) => failures.push(format!("{point:?} is never reached")),
                Err(error) => failures.push(format!("{point:?}, {crash:?}: {error}")),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!("{} points, each in two ways", Failpoint::ALL.len());
}

#[test]
#[ignore = "takes minutes: make simulate"]
fn each_point_may_be_the_end_each_time() {
    let _alone = crate::replica_simulation::ALONE.lock();
    let mut ends = 0;
    for &point in Failpoint::ALL {
        for crash in [Crash::Process, Crash::Power] {
            let mut nth = 1;
            while ends_at(point, nth, crash)
                .unwrap_or_else(|error| panic!("{point:?}, {nth}, {crash:?}: {error}"))
            {
                (ends, nth) = (ends + 1, nth + 1);
            }
        }
    }
    println!("{ends} ends at {} points", Failpoint::ALL.len());
}
