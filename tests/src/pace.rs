//! How long is too long. Limits are given for a machine that has nothing else to do.

use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// In the lab's emulator a system call takes about twenty times as long, a process start more; most of a limit is slack.
const IN_THE_LAB: u32 = 10;

static FACTOR: LazyLock<u32> =
    LazyLock::new(|| if std::env::var_os("SHUNT_LAB").is_some() { IN_THE_LAB } else { 1 });

/// A hang is a failure however busy the machine is.
const MOST_CROWDED: u32 = 20;

/// An upper limit in the pace of this machine, as it is now: it may get longer while one waits.
pub fn limit(usual: Duration) -> Duration {
    usual * *FACTOR * crowd()
}

/// A limit in seconds, in the pace of this machine.
pub fn seconds(usual: u64) -> Duration {
    limit(Duration::from_secs(usual))
}

/// How many tasks there are to a processor, now or in the last minute, whichever is more.
fn crowd() -> u32 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut fields = load.split(' ');
    let minute: f64 = fields.next().and_then(|field| field.parse().ok()).unwrap_or(0.0);
    let now: f64 = fields.nth(2).and_then(|field| field.split('/').next()?.parse().ok()).unwrap_or(0.0);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    ((minute.max(now) / processors as f64).ceil() as u32).clamp(1, MOST_CROWDED)
}

/// How long it takes now to start a small program and see it end.
///
/// # Panics
/// Without `true` in `PATH`.
pub fn start_of_a_program() -> Duration {
    let begun = Instant::now();
    Command::new("true").stdin(Stdio::null()).status().expect("true");
    begun.elapsed()
}

/// A small program takes this long at most where nothing else runs.
const USUAL_START: Duration = Duration::from_millis(5);

/// As [`limit`], for what starts a program itself, where at the same time a small one [took](start_of_a_program) so long:
/// closer, because a crowd of tasks that mostly sleep does not make it longer.
pub fn limit_of_start(usual: Duration, took: Duration) -> Duration {
    let slower = took.as_nanos().div_ceil(USUAL_START.as_nanos());
    usual * u32::try_from(slower).unwrap_or(u32::MAX).max(*FACTOR)
}
