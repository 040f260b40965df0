//! A connection that goes silent while in use.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use shunt_test_support::cmd::within;
use shunt_test_support::{needs_mount, needs_tools, pace, skip};

use crate::volume_soak::cluster::{Cluster, GATEWAYS, NODES};
use crate::volume_soak::coverage::Coverage;
use crate::volume_soak::netns::Cut;

/// Maximum time until the expected state.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time of the first request over a silent connection: 10 s, plus some for a loaded machine.
const FIRST_ERROR_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time of a request while the store is known to be unreachable.
const KNOWN_OUTAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time until the return of the contents is noticed: they are probed twice a second.
const RECOVERY_NOTICE_TIMEOUT: Duration = Duration::from_secs(5);
/// Nodes without a full cache: one connected directly, one behind the gateway.
const NODES_WITHOUT_FULL_CACHE: [usize; 2] = [1, 2];
const SIZE: usize = 1 << 20;

/// Asserts that a read fails with a network error within a time.
fn fails(path: &Path, in_time: Duration) {
    let begun = Instant::now();
    let read = fs::read(path);
    let took = begun.elapsed();
    assert_eq!(read.unwrap_err().raw_os_error(), Some(Errno::NETUNREACH.raw_os_error()), "{path:?}");
    assert!(took < pace::limit(in_time), "{path:?}: {took:?}");
}

#[test]
fn silent_connection_is_reported() {
    needs_mount!();
    needs_tools!("ip", "nft");
    let Some(cluster) = Cluster::new(&Arc::new(Coverage::default()), 1) else {
        skip::skip("no PostgreSQL or versitygw (run tests/setup)");
        return;
    };
    let bytes: Vec<u8> = (0..SIZE as u32).map(|n| (n.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
    for name in ["first", "second"] {
        fs::write(cluster.nodes[0].work().join(name), &bytes).unwrap();
    }
    let is_there = |n: usize| {
        let status = cluster.nodes[n].status();
        let file = fs::metadata(cluster.nodes[n].work().join("second"));
        file.is_ok_and(|file| file.len() == SIZE as u64)
            && status["state"] == "online"
            && status["pending"] == 0
    };
    assert!(within(RECOVERY_TIMEOUT, || (0..NODES.len()).all(is_there)), "the files do not come");

    std::thread::scope(|scope| {
        for n in NODES_WITHOUT_FULL_CACHE {
            let cluster = &cluster;
            let node = &cluster.nodes[n];
            scope.spawn(move || {
                cluster.cut(n, Cut::Drops);
                fails(&node.work().join("first"), FIRST_ERROR_TIMEOUT);
                let is_known = || node.status()["state"] == "unreachable";
                assert!(within(RECOVERY_TIMEOUT, is_known), "{}: {}", NODES[n], node.status());
                fails(&node.work().join("second"), KNOWN_OUTAGE_TIMEOUT);
                (0..3).for_each(|_| {
                    fails(&node.work().join(".shunt-history/second@2020-01-01"), KNOWN_OUTAGE_TIMEOUT)
                });
                cluster.mend(n, Cut::Drops);
                assert!(within(RECOVERY_TIMEOUT, || is_there(n)), "{}: {}", NODES[n], node.status());
            });
        }
    });
    for n in NODES_WITHOUT_FULL_CACHE {
        assert!(fs::read(cluster.nodes[n].work().join("second")).unwrap() == bytes, "{}", NODES[n]);
    }
    cluster.look_after();
}

/// The connection between two gateways goes silent.
#[test]
fn silent_connection_to_gateway_is_reported() {
    needs_mount!();
    needs_tools!("ip", "nft");
    let Some(cluster) = Cluster::new(&Arc::new(Coverage::default()), 2) else {
        skip::skip("no PostgreSQL or versitygw (run tests/setup)");
        return;
    };
    let node = &cluster.nodes[NODES_WITHOUT_FULL_CACHE[1]];
    for name in ["first", "second"] {
        fs::write(cluster.nodes[0].work().join(name), vec![7; SIZE]).unwrap();
    }
    let is_there = || fs::metadata(node.work().join("second")).is_ok_and(|file| file.len() == SIZE as u64);
    assert!(within(RECOVERY_TIMEOUT, is_there), "the files do not come");
    cluster.cut(GATEWAYS[0], Cut::Drops);
    fails(&node.work().join("first"), FIRST_ERROR_TIMEOUT);
    let is_known = || node.status()["state"] == "unreachable";
    assert!(within(RECOVERY_TIMEOUT, is_known), "{}", node.status());
    fails(&node.work().join("second"), KNOWN_OUTAGE_TIMEOUT);
    cluster.mend(GATEWAYS[0], Cut::Drops);
    assert!(within(RECOVERY_TIMEOUT, || node.status()["state"] == "online"), "{}", node.status());
    assert!(fs::read(node.work().join("second")).unwrap() == vec![7; SIZE]);
    cluster.look_after();
}

/// Only the object store ends: metadata stay available, and contents are downloaded as soon as it is back.
#[test]
fn contents_that_alone_were_away_come_once_they_are_back() {
    needs_mount!();
    needs_tools!("ip", "nft");
    let Some(cluster) = Cluster::new(&Arc::new(Coverage::default()), 1) else {
        skip::skip("no PostgreSQL or versitygw (run tests/setup)");
        return;
    };
    for name in ["first", "second"] {
        fs::write(cluster.nodes[0].work().join(name), vec![7; SIZE]).unwrap();
    }
    let they = NODES_WITHOUT_FULL_CACHE.map(|n| &cluster.nodes[n]);
    let is_there = || {
        they.iter()
            .all(|node| fs::metadata(node.work().join("second")).is_ok_and(|file| file.len() == SIZE as u64))
    };
    assert!(within(RECOVERY_TIMEOUT, is_there), "the files do not come");
    cluster.s3().kill();
    for node in they {
        fails(&node.work().join("first"), FIRST_ERROR_TIMEOUT);
        (0..3).for_each(|_| fails(&node.work().join("second"), KNOWN_OUTAGE_TIMEOUT));
        let status = node.status();
        assert_eq!(
            (&status["state"], &status["objects_unreachable"]),
            (&"online".into(), &true.into()),
            "{status}"
        );
    }
    cluster.s3().start_again();
    let back = Instant::now();
    assert!(within(RECOVERY_TIMEOUT, || they
        .iter()
        .all(|node| node.status()["objects_unreachable"] == false)));
    let took = back.elapsed();
    assert!(took < pace::limit(RECOVERY_NOTICE_TIMEOUT), "{took:?}");
    for node in they {
        assert!(fs::read(node.work().join("second")).unwrap() == vec![7; SIZE], "{}", node.name);
    }
    cluster.look_after();
}
