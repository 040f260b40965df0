//! What Shunt says of itself: `shunt stat MOUNTPOINT --json`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

/// The parts that are used here.
#[derive(Debug, Deserialize)]
pub struct Stat {
    /// The serving process.
    #[serde(default)]
    pub pid: Option<u32>,
    /// By operation.
    #[serde(default)]
    pub requests: BTreeMap<String, Requests>,
    /// As it comes; shown as a note.
    #[serde(default)]
    pub memory: serde_json::Value,
}

/// The requests of one operation.
#[derive(Debug, Deserialize)]
pub struct Requests {
    /// How many were answered.
    pub count: u64,
}

impl Stat {
    /// Asks the daemon behind `mount_point`.
    ///
    /// # Errors
    /// When the command fails or does not keep to its contract.
    pub fn read(shunt: &Path, mount_point: &Path) -> Result<Self> {
        let json = crate::job::run(Command::new(shunt).arg("stat").arg(mount_point).arg("--json"))?;
        serde_json::from_slice(&json).context("the JSON of shunt stat")
    }

    /// Requests of one operation.
    pub fn count(&self, operation: &str) -> u64 {
        self.requests.get(operation).map_or(0, |requests| requests.count)
    }

    /// Requests of all operations that are answered, as the kernel's tracepoint counts them.
    pub fn total(&self) -> u64 {
        let answered = self.requests.iter().filter(|(operation, _)| !operation.ends_with("forget"));
        answered.map(|(_, requests)| requests.count).sum()
    }
}
