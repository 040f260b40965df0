//! How long is too long. Limits are given for a machine that runs its code itself.

use std::sync::LazyLock;
use std::time::Duration;

/// In the lab's emulator a system call takes about twenty times as long, a process start more; most of a limit is slack.
const IN_THE_LAB: u32 = 10;

static FACTOR: LazyLock<u32> =
    LazyLock::new(|| if std::env::var_os("SHUNT_LAB").is_some() { IN_THE_LAB } else { 1 });

/// An upper limit in the pace of this machine.
pub fn limit(usual: Duration) -> Duration {
    usual * *FACTOR
}

/// A limit in seconds, in the pace of this machine.
pub fn seconds(usual: u64) -> Duration {
    limit(Duration::from_secs(usual))
}
