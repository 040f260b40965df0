//! Runs `shunt volume` commands by this program: the page does what they do, with the same checks and messages.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::Value;

use super::error::{Failure, Result};
use super::limited_output::LimitedOutput;

/// This program, also after its file was replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// Time limit of a command. The restore of a large directory takes minutes.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Limit of the output of a command: some ten thousand conflicts.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// Runs `shunt volume` with subcommand and options, and `operands` behind `--`. Returns its standard output.
///
/// # Errors
/// The command fails: the message is its own. Or it cannot be run, or exceeds a limit.
pub fn run(options: &[impl AsRef<OsStr>], operands: &[&OsStr]) -> Result<Vec<u8>> {
    let mut command = Command::new(OWN_PROGRAM);
    command.arg0("shunt").arg("volume").args(options).arg("--").args(operands);
    let output = LimitedOutput::of(&mut command, COMMAND_TIMEOUT, MAX_OUTPUT_BYTES).map_err(|error| {
        let subcommand = options.first().map(|name| name.as_ref().to_string_lossy()).unwrap_or_default();
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format_args!("cannot run `shunt volume {subcommand}`: {error}; run it in a terminal"),
        )
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr.lines().map(|line| line.strip_prefix("shunt: ").unwrap_or(line)).collect();
    Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, lines.join("; ")))
}

/// Runs `shunt volume` like [`run`], and parses its JSON.
///
/// # Errors
/// Those of [`run`].
pub fn json(options: &[impl AsRef<OsStr>], operands: &[&OsStr]) -> Result<Value> {
    serde_json::from_slice(&run(options, operands)?)
        .map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error))
}
