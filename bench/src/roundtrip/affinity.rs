//! Pins threads of the client and of the server to cores.

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Pins the calling thread to `core`.
///
/// # Errors
/// When there is no such core.
pub fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).context("pin to a core")
}
