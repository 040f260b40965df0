//! Shunt's own statistics, from `shunt stat MOUNTPOINT --json`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

/// The fields of the JSON that the benchmark uses.
#[derive(Debug, Deserialize)]
pub struct Stat {
    /// The serving process.
    #[serde(default)]
    pub pid: Option<u32>,
    /// Requests, by operation.
    #[serde(default)]
    pub requests: BTreeMap<String, Requests>,
    /// Memory figures, passed on unparsed as a note.
    #[serde(default)]
    pub memory: serde_json::Value,
}

/// The requests of one operation.
#[derive(Debug, Deserialize)]
pub struct Requests {
    /// Number of answered requests.
    pub count: u64,
}

impl Stat {
    /// Queries the daemon behind `mount_point`.
    ///
    /// # Errors
    /// When the command fails or its output is not the expected JSON.
    pub fn read(shunt: &Path, mount_point: &Path) -> Result<Self> {
        let json = crate::job::run(Command::new(shunt).arg("stat").arg(mount_point).arg("--json"))?;
        serde_json::from_slice(&json).context("parse the output of shunt stat --json")
    }

    /// Requests of one operation.
    pub fn count(&self, operation: &str) -> u64 {
        self.requests.get(operation).map_or(0, |requests| requests.count)
    }

    /// Requests of all operations that have a reply, as the kernel's tracepoint counts them.
    pub fn total(&self) -> u64 {
        let answered = self.requests.iter().filter(|(operation, _)| !operation.ends_with("forget"));
        answered.map(|(_, requests)| requests.count).sum()
    }
}
