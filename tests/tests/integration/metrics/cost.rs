//! The cost of scrapes.

use std::time::Duration;

use shunt_test_support::needs_mount;
use shunt_tests::exporter::Exporter;
use shunt_tests::fixture::{Fixture, Plan};
use shunt_tests::mounts;

const MOUNTS: usize = 10;
const SCRAPES: u32 = 60;
/// Longer than the exporter reuses a result.
const PAUSE: Duration = Duration::from_millis(250);
/// At one scrape per second, one percent of a core.
const MAX_MS_PER_SCRAPE: f64 = 10.0;

#[test]
#[ignore = "a measurement: make test-metrics"]
fn ten_mounts_cost_less_than_a_percent_at_one_scrape_per_second() {
    needs_mount!();
    let mirrors: Vec<Fixture> = (0..MOUNTS).map(|_| Plan::daemon().set().unwrap()).collect();
    for mirror in &mirrors {
        std::fs::write(mirror.path("file"), "content").unwrap();
        std::fs::read_dir(mirror.mnt()).unwrap().for_each(drop);
    }
    let exporter = Exporter::start();
    exporter.scrape();
    let all = || -> [f64; 2] {
        [
            mirrors.iter().map(|mirror| mounts::cpu_seconds(mirror.pid())).sum(),
            mounts::cpu_seconds(exporter.pid()),
        ]
    };
    let before = all();
    for _ in 0..SCRAPES {
        std::thread::sleep(PAUSE);
        exporter.scrape();
    }
    let after = all();
    let [daemons, own] = [0, 1].map(|at| (after[at] - before[at]) / f64::from(SCRAPES) * 1e3);
    println!(
        "metrics: {:.2} ms of a core per scrape of {MOUNTS} mounts: {own:.2} exporter, {daemons:.2} daemons",
        own + daemons
    );
    assert!(own + daemons < MAX_MS_PER_SCRAPE);
}
