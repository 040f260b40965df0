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
    let log = tracing_subscriber::fmt()
        .with_env_filter(from_environment(&directives(args.verbose)))
        .with_writer(writer);
    // Only a second call could fail, and each process makes one.
    let _ = if args.log_json { log.json().try_init() } else { log.with_ansi(colour).try_init() };
}

/// A writer that drops lines it cannot write, as on a full disk, instead of ending the program: the report of a failed line goes
/// to standard error, which may be full too, and would panic.
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

/// The target of statistics requested by a signal, logged at any level.
pub const STATISTICS: &str = "statistics";

/// The target of audited policy decisions, logged at any level.
const AUDIT: &str = "audit";

/// The crates whose level `-v` raises.
const OWN_CRATES: [&str; 13] = [
    "shunt",
    "shunt_fuse",
    "shunt_fuse_ext",
    "shunt_lsm",
    "shunt_mirror",
    "shunt_policyfs",
    "shunt_csi",
    "shunt_ext4",
    "shunt_ext4fs",
    "shunt_volume",
    "shunt_volume_gateway",
    "shunt_volume_store",
    "shunt_volumefs",
];

/// Warnings of all crates, and a lower level for Shunt's own with each -v.
fn directives(verbose: u8) -> String {
    let own = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let own: String = OWN_CRATES.iter().map(|name| format!(",{name}={own}")).collect();
    format!("warn,{STATISTICS}=info,{AUDIT}=info{own}")
}

fn from_environment(default: &str) -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn logs(dir: &Path) -> bool {
        fs::read_dir(dir).unwrap().flatten().any(|entry| {
            let path = entry.path();
            if path.is_dir() {
                return logs(&path);
            }
            path.extension().is_some_and(|kind| kind == "rs")
                && fs::read_to_string(path).unwrap().contains("tracing::")
        })
    }

    #[test]
    fn each_crate_that_logs_hears_of_v() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut logging: Vec<String> = fs::read_dir(crates)
            .unwrap()
            .flatten()
            .filter(|entry| logs(&entry.path().join("src")))
            .map(|entry| match entry.file_name().to_str().unwrap() {
                "shunt" => "shunt".to_owned(),
                name => format!("shunt_{}", name.replace('-', "_")),
            })
            .collect();
        let mut own = OWN_CRATES.to_vec();
        logging.sort();
        own.sort_unstable();
        assert_eq!(own, logging);
        assert!(directives(1).contains("shunt_volume=info"));
    }
}
