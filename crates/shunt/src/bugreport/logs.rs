//! The logs: the journal of the units, the log files of daemons, and messages of the kernel that concern file systems.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use super::{Redactor, json, tool};
use crate::probe::{self, MAX_FILE_BYTES};

/// Messages of the kernel, the latest ones.
const MAX_KERNEL_LINES: usize = 500;
/// Messages of the kernel that are packed contain one of these, in any case.
const RELEVANT: &[&str] = &[
    "fuse",
    "shunt",
    "ext4",
    "jbd2",
    "loop",
    "io_uring",
    "landlock",
    "bug:",
    "warning:",
    "oops",
    "out of memory",
    "oom-kill",
    "blocked for more than",
    "i/o error",
];

/// The journal of units named `shunt-*` and of processes named `shunt`, of the last week.
pub fn journal() -> String {
    let common = ["--no-pager", "--no-hostname", "-o", "short-iso", "-n", "2000", "--since", "-7d", "-q"];
    let mut out = String::new();
    for (title, matches) in [
        ("units", &["-u", "shunt-*"][..]),
        ("user units", &["--user", "-u", "shunt-*"]),
        ("processes", &["_COMM=shunt"]),
    ] {
        let text = tool::output("journalctl", &[&common[..], matches].concat()).unwrap_or_default();
        if !text.trim().is_empty() {
            out.push_str(&format!("journal of {title}\n{text}\n"));
        }
    }
    out
}

/// The relevant messages of the kernel; none if this user may not read them.
pub fn kernel() -> Option<String> {
    let mut log = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").ok()?;
    let mut lines = Vec::new();
    let mut record = vec![0; 8192];
    loop {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(length) => lines.extend(kernel_line(&String::from_utf8_lossy(&record[..length]))),
            // Records were overwritten meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(_) => break,
        }
    }
    Some(lines.split_off(lines.len().saturating_sub(MAX_KERNEL_LINES)).concat())
}

/// A record `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;MESSAGE` as a line, if it is relevant.
fn kernel_line(record: &str) -> Option<String> {
    let (head, message) = record.split_once(';')?;
    let message = message.lines().next()?;
    let lower = message.to_ascii_lowercase();
    let micros: u64 = head.split(',').nth(2)?.parse().ok()?;
    RELEVANT
        .iter()
        .any(|word| lower.contains(word))
        .then(|| format!("[{}.{:06}] {message}\n", micros / 1_000_000, micros % 1_000_000))
}

/// The end of a daemon's log file, if it is a regular file of the daemon's user: root must not read a file on behalf of another.
pub fn log_file(argv: &[String], pid: u32) -> Option<String> {
    let given = argv.iter().enumerate().find_map(|(at, word)| match word.strip_prefix("--log-file") {
        Some("") => argv.get(at + 1).map(String::as_str),
        Some(value) => value.strip_prefix('='),
        None => word.split(',').find_map(|option| option.strip_prefix("log-file=")),
    })?;
    let path = PathBuf::from(format!("/proc/{pid}/cwd")).join(given);
    let owner = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let bytes = probe::end_of_file(&path, owner)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // The first line is incomplete.
    Some(if bytes.len() as u64 == MAX_FILE_BYTES { text.split_once('\n')?.1.to_owned() } else { text })
}

/// A log without names. Lines may be text or JSON objects.
pub fn redact(redactor: &mut Redactor, log: &str) -> String {
    let mut out = String::new();
    for line in log.lines() {
        match serde_json::from_str::<serde_json::Value>(line) {
            Ok(value @ serde_json::Value::Object(_)) => {
                out.push_str(&json::redact(redactor, value).to_string());
                out.push('\n');
            }
            _ => out.push_str(&redactor.text(line)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relevant_messages_of_the_kernel_are_taken() {
        assert_eq!(
            kernel_line("6,12,1500000,-;fuse: init (API)\n SUB=x\n").as_deref(),
            Some("[1.500000] fuse: init (API)\n")
        );
        assert_eq!(kernel_line("6,12,1500000,-;eth0: link up\n"), None);
        assert_eq!(kernel_line("nonsense"), None);
    }
}
