//! `shunt`: file systems in user space at kernel speed.

mod args;
mod bench;
mod bugreport;
mod cli;
mod cmd;
mod control;
mod daemon;
mod doctor;
mod error;
mod extension;
mod files;
mod grafts;
mod helper;
mod host_header;
mod inherited;
mod log;
mod metrics;
mod mount_users;
mod own_mounts;
mod probe;
mod process;
mod progress;
mod report;
mod sandbox;
mod serve;
mod service_manager;
mod text;
mod top;
mod unmount;
mod web;
mod xdg;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use error::Result;

fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    match helper::translate(&argv) {
        Ok(None) => finish(run(&argv), |code| code as u8),
        // With -f mount(8) asks whether the mount would succeed; only the arguments can be checked.
        Ok(Some(call)) if call.fake => {
            finish(cli::parse(&call.argv).map(|_| ExitCode::SUCCESS), helper::exit_code)
        }
        Ok(Some(call)) => finish(run(&call.argv), helper::exit_code),
        Err(failure) => finish(Err(failure), helper::exit_code),
    }
}

fn run(argv: &[OsString]) -> Result<ExitCode> {
    cmd::run(cli::parse(argv)?, argv)
}

fn finish(outcome: Result<ExitCode>, number: impl Fn(error::Code) -> u8) -> ExitCode {
    outcome.unwrap_or_else(|failure| {
        // A closed standard error is no reason to panic.
        let _ = writeln!(std::io::stderr(), "shunt: {failure}");
        ExitCode::from(number(failure.code))
    })
}
