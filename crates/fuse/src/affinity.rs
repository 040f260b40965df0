//! Which processors threads may run on.
//!
//! Ring threads are pinned, and a thread begins where the one that started it may run.

use std::sync::OnceLock;

use rustix::thread::CpuSet;

static EVERYWHERE: OnceLock<CpuSet> = OnceLock::new();

/// Remembers where this process may run. To be called before the first thread is pinned.
pub(crate) fn remember() {
    if EVERYWHERE.get().is_none()
        && let Ok(cpus) = rustix::thread::sched_getaffinity(None)
    {
        EVERYWHERE.set(cpus).ok();
    }
}

/// Keeps the calling thread on one processor. One that is not there, or not ours, leaves it where it is.
pub(crate) fn pin(processor: u16) {
    let mut cpus = CpuSet::new();
    cpus.set(processor.into());
    rustix::thread::sched_setaffinity(None, &cpus).ok();
}

/// Lets the calling thread, which a pinned one may have started, run wherever the process may.
pub(crate) fn roam() {
    if let Some(cpus) = EVERYWHERE.get() {
        rustix::thread::sched_setaffinity(None, cpus).ok();
    }
}
