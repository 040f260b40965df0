//! The log: to stderr or a file, as text or JSON.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::args::LogArgs;
use crate::error::{Result, failed};

/// Starts the log.
///
/// # Errors
/// The log file cannot be opened.
pub fn start(args: &LogArgs) -> Result<()> {
    let file = args.log_file.as_ref().map(|path| {
        OpenOptions::new().append(true).create(true).mode(0o640).open(path).map_err(|error| {
            failed(format_args!(
                "cannot open the log file {}: {error}; name another with --log-file",
                path.display()
            ))
        })
    });
    start_in(args, file.transpose()?);
    Ok(())
}

/// The log file, once it is open.
static LOG_FILE: OnceLock<File> = OnceLock::new();

/// The log file, if the log goes to one.
pub fn file() -> Option<&'static File> {
    LOG_FILE.get()
}

/// Starts the log in a file that is open already, or on standard error.
pub fn start_in(args: &LogArgs, file: Option<File>) {
    let (writer, colour) = match file {
        None => (BoxMakeWriter::new(|| Lossy(std::io::stderr())), std::io::stderr().is_terminal()),
        Some(file) => {
            let file = LOG_FILE.get_or_init(|| file);
            (BoxMakeWriter::new(move || Lossy(file)), false)
        }
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter(args.verbose)).with_writer(writer);
    // A second start (never in one process) would be the only error.
    let _ = if args.log_json { log.json().try_init() } else { log.with_ansi(colour).try_init() };
}

/// A log that loses lines where they cannot be written, as on a full disk, rather than end the program: what reports a failed
/// line goes to standard error, which may be full, too, and panics then.
struct Lossy<W>(W);

impl<W: Write> Write for Lossy<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(self.0.write(bytes).unwrap_or(bytes.len()))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

/// What was asked for by a signal is logged at any level.
pub const STATISTICS: &str = "statistics";

/// Decisions that the rules of a policy want told, and so they are at any level.
const AUDIT: &str = "audit";

/// Everybody's warnings, and more of our own with each -v.
fn filter(verbose: u8) -> EnvFilter {
    let own = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let crates = ["shunt", "shunt_fuse", "shunt_mirror", "shunt_ext4", "shunt_ext4fs"];
    let own: String = crates.iter().map(|name| format!(",{name}={own}")).collect();
    from_environment(&format!("warn,{STATISTICS}=info,{AUDIT}=info{own}"))
}

fn from_environment(default: &str) -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default))
}
