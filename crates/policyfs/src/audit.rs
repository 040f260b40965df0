//! The audit log: one line of JSON for each decision of a rule that asks for it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::json;
use shunt_fuse::Errno;

/// Destination of audit lines: a file, or the log of the process.
#[derive(Debug, Default)]
pub struct AuditLog {
    file: Option<Mutex<AuditFile>>,
    /// An operation fails if its audit line cannot be written.
    required: bool,
}

#[derive(Debug)]
struct AuditFile {
    file: File,
    /// The last line was not written completely.
    failed: bool,
}

/// One audited decision.
pub(crate) struct Line<'a> {
    pub(crate) rule: &'a str,
    pub(crate) line: usize,
    pub(crate) op: &'static str,
    pub(crate) outcome: &'static str,
    pub(crate) path: &'a [u8],
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

impl AuditLog {
    /// Writes to the log of the process.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends to a file, which is created readable by its owner only.
    ///
    /// # Errors
    /// The error of `open(2)`.
    pub fn to(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self::into(file))
    }

    /// Writes to a file that is open for appending.
    pub(crate) fn into(file: File) -> Self {
        Self { file: Some(Mutex::new(AuditFile { file, failed: false })), required: false }
    }

    /// Makes operations fail if their line cannot be written to the file.
    pub fn require(&mut self) {
        self.required = true;
    }

    pub(crate) fn file(&self) -> Option<File> {
        self.file.as_ref()?.lock().file.try_clone().ok()
    }

    /// Writes the line of a decision. If the file cannot be written, the line goes to the log of the process.
    ///
    /// # Errors
    /// EIO if the line is [required](Self::require) and cannot be written.
    pub(crate) fn record(&self, line: &Line<'_>) -> Result<(), Errno> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let text = json!({
            "time": time.as_secs_f64(),
            "rule": line.rule,
            "line": line.line,
            "op": line.op,
            "outcome": line.outcome,
            "path": escaped(line.path),
            "uid": line.uid,
            "gid": line.gid,
            "pid": line.pid,
        });
        let written = match &self.file {
            // A daemon that took over may not have received the file.
            None => !self.required,
            Some(file) => file.lock().write(&format!("{text}\n")),
        };
        if self.file.is_none() || !written {
            tracing::info!(target: "audit", "{text}");
        }
        if self.required && !written { Err(Errno::IO) } else { Ok(()) }
    }
}

impl AuditFile {
    /// Writes a line. Logs once when writing begins to fail, and once when it works again.
    fn write(&mut self, line: &str) -> bool {
        // A single write keeps lines of several processes apart. A truncated line is terminated first.
        let written = match self.failed {
            true => self.file.write_all(format!("\n{line}").as_bytes()),
            false => self.file.write_all(line.as_bytes()),
        };
        match (&written, self.failed) {
            (Err(error), false) => {
                tracing::error!(
                    "cannot write the audit log: {error}; its lines go to this log until it can be written again"
                );
            }
            (Ok(()), true) => tracing::warn!("writing the audit log works again"),
            _ => {}
        }
        self.failed = written.is_err();
        written.is_ok()
    }
}

/// Escapes a path unambiguously: `\\` for a backslash, `\xNN` for a byte that is not UTF-8.
fn escaped(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_paths_are_escaped_alike() {
        assert_eq!(escaped("/a/\u{e4}".as_bytes()), "/a/\u{e4}");
        assert_eq!(escaped(b"/a\xff"), "/a\\xff");
        assert_eq!(escaped(b"/a\\xff"), "/a\\\\xff");
        assert_eq!(escaped("/a\u{fffd}".as_bytes()), "/a\u{fffd}");
        assert_eq!(escaped(b"/\xc3\x28"), "/\\xc3(");
    }
}
