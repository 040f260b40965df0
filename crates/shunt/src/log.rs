//! The log: to stderr or a file, as text or JSON.

use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::args::LogArgs;
use crate::error::{Result, failed};

/// Starts the log.
///
/// # Errors
/// The log file cannot be opened.
pub fn start(args: &LogArgs) -> Result<()> {
    let (writer, colour) = match &args.log_file {
        None => (BoxMakeWriter::new(std::io::stderr), std::io::stderr().is_terminal()),
        Some(path) => {
            let file =
                OpenOptions::new().append(true).create(true).mode(0o640).open(path).map_err(|error| {
                    failed(format_args!(
                        "cannot open the log file {}: {error}; name another with --log-file",
                        path.display()
                    ))
                })?;
            (BoxMakeWriter::new(Mutex::new(file)), false)
        }
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter(args.verbose)).with_writer(writer);
    // A second start (never in one process) would be the only error.
    let _ = if args.log_json { log.json().try_init() } else { log.with_ansi(colour).try_init() };
    Ok(())
}

/// What was asked for by a signal is logged at any level.
pub const STATISTICS: &str = "statistics";

/// Everybody's warnings, and more of our own with each -v.
fn filter(verbose: u8) -> EnvFilter {
    let own = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    from_environment(&format!("warn,{STATISTICS}=info,shunt={own},shunt_fuse={own},shunt_mirror={own}"))
}

fn from_environment(default: &str) -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default))
}
