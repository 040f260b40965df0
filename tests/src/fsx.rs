//! fsx, which executes random file operations and verifies their results.

use std::path::Path;
use std::process::Command;

use shunt_test_support::{requirement, run_for, tools};

/// Weights of all operations.
const CONFIG: &str = "
flen = 1048576
[weights]
close_open = 1
invalidate = 1
read = 10
write = 10
mapread = 5
mapwrite = 5
truncate = 3
fsync = 0.2
fdatasync = 0.2
posix_fallocate = 1
punch_hole = 1
sendfile = 2
posix_fadvise = 1
copy_file_range = 2
";

/// Runs the given number of operations on each of three files in `at`, except those whose name begins with one of `without`.
/// `aside` holds its logs.
///
/// # Panics
/// If a result is wrong.
#[track_caller]
pub fn run(at: &Path, aside: &Path, operations: u32, without: &[&str]) {
    let tool = tools::tool("fsx");
    requirement!(tool.is_some(), "no fsx (run tests/setup)");
    let tool = tool.unwrap_or_default();
    let config = aside.join("fsx.toml");
    let known = CONFIG.lines().filter(|line| !without.iter().any(|name| line.starts_with(name)));
    std::fs::write(&config, known.fold(String::new(), |text, line| text + line + "\n")).expect("fsx.toml");
    for seed in 1..=3 {
        let mut command = Command::new(&tool);
        command.args(["-S", &seed.to_string(), "-N", &operations.to_string(), "-f"]).arg(&config);
        run_for(120, command.arg("-P").arg(aside).arg(at.join(format!("file{seed}")))).ok();
    }
}
