//! Ties a daemon's life to that of the harness.

use std::ffi::OsString;
use std::process::Command;

/// A command that the kernel ends together with this process, even when that is killed, with its own limit of descriptors.
pub fn guarded(words: &[OsString], descriptors: Option<u32>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--"]);
    if let Some(limit) = descriptors {
        command.args(["prlimit", &format!("--nofile={limit}:{limit}"), "--"]);
    }
    command.args(words);
    command
}
