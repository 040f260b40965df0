//! Kills daemons at random moments, and measures how long programs waited.

use std::fmt;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shunt_test_support::{pace, run_for};
use shunt_tests::{Rng, binary, mounts};

use super::Subject;

/// How a daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By SIGKILL.
    Killed,
    /// By `shunt upgrade`.
    Upgraded,
}

pub struct Killer<'a> {
    fixture: &'a dyn Subject,
    end: End,
    rng: Rng,
    last: Option<u32>,
    pub kills: Vec<Instant>,
    /// Start times of a small program, measured while a successor took over.
    starts: Vec<Duration>,
}

impl<'a> Killer<'a> {
    pub fn new(fixture: &'a dyn Subject, end: End) -> Self {
        let seed =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        Self { fixture, end, rng: Rng::new(seed), last: None, kills: Vec::new(), starts: Vec::new() }
    }

    /// Waits for a daemon, then a random time, and kills it.
    pub fn strike(&mut self) {
        let found = Instant::now();
        let pid = loop {
            match self.fixture.server() {
                Some(pid) if Some(pid) != self.last => break pid,
                _ => assert!(found.elapsed() < pace::seconds(20), "no daemon follows the killed one"),
            }
        };
        // Some at once, in the middle of their takeover.
        let wait = match self.rng.below(6) {
            0 => Duration::from_micros(self.rng.below(20_000) as u64),
            _ => pace::pause(Duration::from_micros(50_000 + self.rng.below(600_000) as u64)),
        };
        std::thread::sleep(wait);
        self.kills.push(Instant::now());
        match self.end {
            End::Killed => drop(mounts::signal(pid, Signal::KILL)),
            End::Upgraded => self.upgrade(),
        }
        self.last = Some(pid);
        self.starts.push(pace::start_of_a_program());
    }

    /// Upgrades the daemon to the same program. Where a program takes seconds to start, the daemon may give up its probe, which
    /// changes nothing.
    fn upgrade(&self) {
        let given_up = ["printed nothing within", "no reply in time"];
        let begun = Instant::now();
        loop {
            let mut upgrade = binary::command(&["upgrade", "--binary"]);
            let ran = run_for(40, upgrade.arg(binary::shunt()).arg(self.fixture.mnt()));
            if given_up.iter().any(|reason| ran.err.contains(reason))
                && begun.elapsed() < pace::seconds(60)
                && pace::programs_start_slowly()
            {
                continue;
            }
            assert!(ran.ok().contains("pause"));
            return;
        }
    }

    /// Returns the maximum duration of a takeover, scaled by the speed of the machine during the run.
    pub fn limit(&mut self) -> Duration {
        self.starts.sort();
        let start = self.starts.get(self.starts.len() / 2).copied().unwrap_or_default();
        pace::limit_of_start(Duration::from_millis(200), start)
    }
}

/// Duration of the slowest call around each kill.
#[derive(Default)]
pub struct Pauses(Vec<Duration>);

impl Pauses {
    /// Computes the pauses. `calls` are the slow calls, with begin and end.
    pub fn of(kills: &[Instant], calls: &[(Instant, Instant)]) -> Self {
        let slowest = |kill: &Instant| {
            let around = calls
                .iter()
                .filter(|(begun, ended)| *ended >= *kill && *begun <= *kill + Duration::from_millis(20));
            around.map(|(begun, ended)| *ended - *begun.max(kill)).max().unwrap_or_default()
        };
        let mut pauses: Vec<_> = kills.iter().map(slowest).collect();
        pauses.sort();
        Self(pauses)
    }

    fn at(&self, part: f64) -> Duration {
        let place = (self.0.len() as f64 * part) as usize;
        self.0.get(place.min(self.0.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    pub fn median(&self) -> Duration {
        self.at(0.5)
    }
}

impl fmt::Display for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |part| self.at(part).as_secs_f64() * 1e3;
        write!(f, "pause {:.1} ms median, {:.1} ms p99, {:.1} ms at most", ms(0.5), ms(0.99), ms(1.0))
    }
}
