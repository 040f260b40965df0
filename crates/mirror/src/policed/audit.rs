//! What rules want told: a line of JSON for each decision.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::json;

/// Where decisions are told.
#[derive(Debug, Default)]
pub struct AuditLog(Option<Mutex<File>>);

/// A decision to be told.
pub(super) struct Line<'a> {
    pub(super) rule: &'a str,
    pub(super) line: usize,
    pub(super) op: &'static str,
    pub(super) outcome: &'static str,
    pub(super) path: &'a [u8],
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: u32,
}

impl AuditLog {
    /// Into the log of the process.
    pub fn new() -> Self {
        Self::default()
    }

    /// At the end of a file, which only its owner may read if it is made.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn to(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self(Some(Mutex::new(file))))
    }

    /// Into a file that is open for appending.
    pub(super) fn into(file: File) -> Self {
        Self(Some(Mutex::new(file)))
    }

    pub(super) fn file(&self) -> Option<File> {
        self.0.as_ref()?.lock().try_clone().ok()
    }

    pub(super) fn tell(&self, line: &Line<'_>) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let text = json!({
            "time": time.as_secs_f64(),
            "rule": line.rule,
            "line": line.line,
            "op": line.op,
            "outcome": line.outcome,
            "path": String::from_utf8_lossy(line.path),
            "uid": line.uid,
            "gid": line.gid,
            "pid": line.pid,
        });
        match &self.0 {
            None => tracing::info!(target: "audit", "{text}"),
            Some(file) => {
                // One write: lines of several threads stay apart.
                if let Err(error) = file.lock().write_all(format!("{text}\n").as_bytes()) {
                    tracing::warn!("cannot write the audit log: {error}; {text}");
                }
            }
        }
    }
}
