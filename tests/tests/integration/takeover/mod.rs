//! Daemons are killed repeatedly while programs work in the mount: each call must have the same result as without a kill.
//!
//! `SHUNT_TAKEOVER_SECONDS` sets the duration for each plan (`make takeover TIME=30m` does that); without it the run is short.

mod edge_cases;
mod fio;
mod images;
mod killer;
mod upgrade;
mod workers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shunt_test_support::{needs_mount, pace};
use shunt_tests::{Fixture, Plan, fixture};

use killer::{End, Killer, Pauses};

/// The mount that the workers use.
pub trait Subject: Sync {
    /// Returns the mount point.
    fn mnt(&self) -> &Path;

    /// Returns the path of a name in the mount.
    fn path(&self, name: &str) -> PathBuf {
        self.mnt().join(name)
    }

    /// Returns the path of a name past the mount, where there is one.
    fn lower(&self, name: &str) -> PathBuf;

    /// Returns the daemon that serves now; `None` between two.
    fn server(&self) -> Option<u32>;
}

impl Subject for Fixture {
    fn mnt(&self) -> &Path {
        self.mnt()
    }

    fn lower(&self, name: &str) -> PathBuf {
        self.lower(name)
    }

    fn server(&self) -> Option<u32> {
        self.server()
    }
}

/// State shared by all workers of a run.
pub struct Run {
    stop: AtomicBool,
    /// Number of calls whose results were checked.
    checked: AtomicU64,
}

impl Run {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn count(&self, calls: u64) {
        self.checked.fetch_add(calls, Ordering::Relaxed);
    }
}

struct StopOnDrop<'a>(&'a Run);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Returns the duration in seconds of a long run of one plan; `None` in a short run.
fn long() -> Option<u64> {
    std::env::var("SHUNT_TAKEOVER_SECONDS").ok()?.parse().ok()
}

fn stand(name: &str, plan: Plan, kills: usize, by: End) {
    needs_mount!();
    let seconds = long();
    let patience = 120 + seconds.unwrap_or(0);
    // A session over io_uring cannot be handed over, so this is never tested over rings.
    let plan = plan.args(&["--crashes", "1000000", "--transport", "dev"]).patience(patience);
    fixture::perform(plan, |s| withstand(name, s, kills, by));
}

/// Ends daemons while workers check the result of each call.
fn withstand(name: &str, s: &dyn Subject, kills: usize, by: End) {
    let seconds = long();
    let run = Arc::new(Run { stop: AtomicBool::new(false), checked: AtomicU64::new(0) });
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (mut pauses, mut limit) = Default::default();
    let killed = std::thread::scope(|scope| {
        let pulse = scope.spawn(|| workers::pulse(s, &run));
        let workers: Vec<_> = workers::ALL
            .iter()
            .map(|(name, work)| {
                let builder = std::thread::Builder::new().name((*name).to_owned());
                builder.spawn_scoped(scope, || work(s, &run)).unwrap()
            })
            .collect();
        // Ends the workers on any exit.
        let _stop = StopOnDrop(&run);
        let mut killer = Killer::new(s, by);
        // A worker that ended has failed, so the run ends, too.
        let failed = || workers.iter().any(|worker| worker.is_finished());
        while !failed() && end.map_or(killer.kills.len() < kills, |end| Instant::now() < end) {
            killer.strike();
        }
        run.stop.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| worker.join().expect("a worker"));
        pauses = Pauses::of(&killer.kills, &pulse.join().expect("the pulse"));
        // A long run has the machine to itself; a short one runs concurrently with other tests, and only a hang is a failure.
        limit = if seconds.is_some() { killer.limit() } else { pace::seconds(5) };
        killer.kills.len()
    });
    println!(
        "takeover, {name}: {killed} daemons ended, {} calls checked, {pauses}",
        run.checked.load(Ordering::Relaxed)
    );
    assert!(pauses.median() < limit, "{pauses}, not within {limit:?}");
}

/// The plans. `scripts/takeover` gives each its share of a long run, one after the other.
mod survive {
    use super::{End, Plan, stand};

    #[test]
    fn passed_through_on_tmpfs() {
        stand("tmpfs, passthrough", Plan::tmpfs(), 6, End::Killed);
    }

    #[test]
    fn passed_through_on_ext4() {
        stand("ext4, passthrough", Plan::ext4(), 6, End::Killed);
    }

    #[test]
    fn through_the_daemon_on_tmpfs() {
        stand("tmpfs, through the daemon", Plan::daemon(), 6, End::Killed);
    }

    #[test]
    fn coherent_on_tmpfs() {
        stand("tmpfs, passthrough, coherent", Plan::tmpfs().args(&["--cache", "coherent"]), 6, End::Killed);
    }

    #[test]
    fn no_open_files_on_tmpfs() {
        stand("tmpfs, nothing opened", Plan::no_open(), 6, End::Killed);
    }

    #[test]
    fn no_open_files_on_ext4() {
        let plan = Plan::ext4().args(&["--passthrough", "off", "--cache", "exclusive"]);
        stand("ext4, nothing opened", plan, 6, End::Killed);
    }

    #[test]
    fn through_the_daemon_on_ext4() {
        stand(
            "ext4, through the daemon, no cache",
            Plan::ext4().args(&["--passthrough", "off", "--cache", "none"]),
            6,
            End::Killed,
        );
    }

    #[test]
    fn exclusive_on_ext4() {
        stand("ext4, passthrough, exclusive", Plan::ext4().args(&["--cache", "exclusive"]), 6, End::Killed);
    }

    #[test]
    fn by_rules_on_tmpfs() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.toml");
        // The first rule applies to every file; the second inspects the content of some.
        let rules = "[[rule]]\npath = \"/**\"\nuid = 4242\naction = \"read-only\"\n\
                     [[rule]]\npath = \"/*/**\"\nuid = 4242\naction = \"redact\"\n";
        std::fs::write(&file, rules).unwrap();
        let plan = Plan::tmpfs().args(&["--lsm", "off", "--policy", file.to_str().unwrap()]);
        stand("tmpfs, by rules", plan, 6, End::Killed);
    }

    #[test]
    fn image() {
        super::images::stand("image", &[], 8);
    }

    #[test]
    fn image_with_small_blocks_and_journal() {
        super::images::stand("image, blocks of 1 KiB", &["-b", "1024", "-J", "size=4"], 8);
    }

    #[test]
    fn upgraded_and_coherent_on_ext4() {
        stand(
            "ext4, passthrough, coherent, upgraded",
            Plan::ext4().args(&["--cache", "coherent"]),
            6,
            End::Upgraded,
        );
    }
}

/// Kills the daemon, and waits until a successor serves.
fn kill(s: &dyn Subject) {
    let pid = s.server().expect("a daemon");
    shunt_tests::mounts::signal(pid, rustix::process::Signal::KILL);
    let next = || s.server().is_some_and(|now| now != pid) && std::fs::metadata(s.mnt()).is_ok();
    assert!(shunt_test_support::cmd::within(Duration::from_secs(20), next), "nobody took over");
}

/// A daemon that crashes repeatedly is not restarted any more: no mount remains, and no caller hangs.
#[test]
fn a_daemon_that_always_ends_is_given_up() {
    needs_mount!();
    fixture::perform(Plan::tmpfs().args(&["--transport", "dev"]), |s: &Fixture| {
        std::fs::write(s.path("f"), "kept").unwrap();
        let start = Instant::now();
        while shunt_tests::mounts::count(s.mnt()) > 0 {
            if let Some(pid) = s.server() {
                shunt_tests::mounts::signal(pid, rustix::process::Signal::KILL);
            }
            assert!(start.elapsed() < shunt_test_support::pace::seconds(20), "never given up");
        }
        assert!(s.ends_within(Duration::from_secs(5)));
        assert_eq!(std::fs::read(s.lower("f")).unwrap(), b"kept");
    });
}
