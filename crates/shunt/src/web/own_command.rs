//! Runs `shunt volume` commands by this program: the page does what they do, with the same checks and messages.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use axum::http::StatusCode;
use serde_json::Value;

use super::error::{Failure, Result};

/// This program, also after its file was replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Runs `shunt volume` with options, and `operands` behind `--`. Returns its standard output.
///
/// # Errors
/// The command fails: the message is its own.
pub fn run(options: &[&str], operands: &[&OsStr]) -> Result<Vec<u8>> {
    let mut command = Command::new(OWN_PROGRAM);
    command.arg0("shunt").arg("volume").args(options).arg("--").args(operands).stdin(Stdio::null());
    let output = command.output().map_err(|error| {
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format_args!("cannot run `shunt volume {}`: {error}", options.join(" ")),
        )
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().map(|line| line.strip_prefix("shunt: ").unwrap_or(line)).collect();
    Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, lines.join("; ")))
}

/// Runs `shunt volume` like [`run`], and parses its JSON.
///
/// # Errors
/// Those of [`run`].
pub fn json(options: &[&str], operands: &[&OsStr]) -> Result<Value> {
    serde_json::from_slice(&run(options, operands)?)
        .map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error))
}
