//! Time limits scaled by the speed of the machine. Limits are given for an idle one.

use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// In the lab's emulator a system call takes about twenty times as long, and a process start even longer. Most of a limit is
/// slack, though.
const IN_THE_LAB: u32 = 10;

static FACTOR: LazyLock<u32> =
    LazyLock::new(|| if std::env::var_os("SHUNT_LAB").is_some() { IN_THE_LAB } else { 1 });

/// Maximum factor for load: a hang is a failure on any machine.
const MAX_LOAD_FACTOR: u32 = 20;

/// Returns an upper limit scaled by the current speed of this machine; it may grow during a wait.
pub fn limit(usual: Duration) -> Duration {
    usual * *FACTOR * crowd()
}

/// Returns a pause between disturbances, so long in the lab's emulator that the disturbed programs get on.
pub fn pause(usual: Duration) -> Duration {
    usual * *FACTOR
}

/// Returns a limit in seconds, scaled by the speed of this machine.
pub fn seconds(usual: u64) -> Duration {
    limit(Duration::from_secs(usual))
}

/// Returns the number of tasks per processor, now or in the last minute, whichever is higher.
fn crowd() -> u32 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut fields = load.split(' ');
    let minute: f64 = fields.next().and_then(|field| field.parse().ok()).unwrap_or(0.0);
    let now: f64 = fields.nth(2).and_then(|field| field.split('/').next()?.parse().ok()).unwrap_or(0.0);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    ((minute.max(now) / processors as f64).ceil() as u32).clamp(1, MAX_LOAD_FACTOR)
}

/// Measures the time to start a small program and see it end.
///
/// # Panics
/// If `true` is not in `PATH`.
pub fn start_of_a_program() -> Duration {
    let begun = Instant::now();
    Command::new("true").stdin(Stdio::null()).status().expect("true");
    begun.elapsed()
}

/// Reports whether programs take so long to start that timeouts of a daemon for another program may end.
pub fn programs_start_slowly() -> bool {
    start_of_a_program() > USUAL_START * 10
}

/// Maximum start time of a small program on an idle machine.
const USUAL_START: Duration = Duration::from_millis(5);

/// Like [`limit`], for an operation that starts a program, while a small one [took](start_of_a_program) this long: tighter,
/// because many mostly sleeping tasks do not raise it.
pub fn limit_of_start(usual: Duration, took: Duration) -> Duration {
    let slower = took.as_nanos().div_ceil(USUAL_START.as_nanos());
    usual * u32::try_from(slower).unwrap_or(u32::MAX).max(*FACTOR)
}
