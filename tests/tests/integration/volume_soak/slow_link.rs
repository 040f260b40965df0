//! A connection with low bandwidth.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shunt_test_support::cmd::within;
use shunt_test_support::{needs_mount, needs_tools, skip};
use shunt_tests::Rng;

use crate::volume_soak::cluster::Cluster;
use crate::volume_soak::coverage::Coverage;

const SLOW_TIMEOUT: Duration = Duration::from_secs(90);
const SIZE: usize = 1 << 19;
/// Delay for each 16 KiB in milliseconds: 400 KiB/s.
const SEGMENT_DELAY_MS: u64 = 40;

/// The node with cache mode `full`, and another one.
const FULL_CACHE_NODE: usize = 0;
const OTHER_NODE: usize = 1;

#[test]
fn over_a_slow_line_comes_only_what_is_asked_for() {
    needs_mount!();
    needs_tools!("ip", "nft");
    let Some(cluster) = Cluster::new(&Arc::new(Coverage::default()), 1) else {
        skip::skip("no PostgreSQL or versitygw (run tests/setup)");
        return;
    };
    let mut rng = Rng::new(1);
    let bytes: Vec<u8> = (0..SIZE).map(|_| rng.below(256) as u8).collect();
    let (here, there) = (&cluster.nodes[FULL_CACHE_NODE], &cluster.nodes[OTHER_NODE]);
    let is_named = |name: &str| {
        within(SLOW_TIMEOUT, || {
            fs::metadata(here.work().join(name)).is_ok_and(|file| file.len() == SIZE as u64)
        })
    };
    let holds = |files: usize| {
        let held = here.status()["cached_bytes"].as_u64().unwrap();
        held >= (files * SIZE) as u64
    };
    cluster.link_faults(FULL_CACHE_NODE).delay.store(SEGMENT_DELAY_MS, Ordering::Relaxed);
    fs::write(there.work().join("first"), &bytes).unwrap();
    // It is downloaded as usual, which measures the bandwidth.
    assert!(is_named("first") && within(SLOW_TIMEOUT, || holds(1)), "{}", here.status());
    assert!(within(SLOW_TIMEOUT, || here.status()["slow"] == true), "{}", here.status());

    fs::write(there.work().join("second"), [&bytes[1..], b"x"].concat()).unwrap();
    assert!(is_named("second"), "{}", here.status());
    // Three times as long as the download would take.
    assert!(!within(Duration::from_secs(5), || holds(2)), "{}", here.status());
    assert!(fs::read(here.work().join("second")).unwrap()[..SIZE - 1] == bytes[1..]);
    cluster.link_faults(FULL_CACHE_NODE).be_fair();
    cluster.look_after();
}
