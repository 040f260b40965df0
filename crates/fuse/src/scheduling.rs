//! CPU affinity and priority of threads that serve io_uring queues.
//!
//! A thread that serves a ring is bound to the CPU of its queue, and has a higher priority there than the threads whose requests
//! it serves. A reply is sent while the serving thread runs: the scheduler considers the CPU busy, so it would migrate the waking
//! caller to an idle one, where its next request finds another ring thread asleep. A caller stays in place if it had used more
//! than its share of the CPU when it began to wait: such a task is not dequeued at once (Linux 6.12), and is woken there.
//! Measured on two CPUs, an untar of 12,600 files: 33,000 migrations of the caller and 1.17 s without, 80 migrations and 0.87 s
//! with.
//!
//! A thread inherits both settings from the one that started it, so every thread that a ring thread may start resets them.

use std::sync::OnceLock;

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Difference in `nice` between ring threads and the other threads of the process.
const NICE_DIFFERENCE: i32 = 10;

#[derive(Debug)]
struct InheritedScheduling {
    processors: Option<CpuSet>,
    nice: Option<i32>,
}

static INHERITED: OnceLock<InheritedScheduling> = OnceLock::new();

/// Records the affinity and priority of this process. Call it before the first thread is [bound](bind).
pub(crate) fn remember() {
    INHERITED.get_or_init(|| InheritedScheduling {
        processors: sched_getaffinity(None).ok(),
        nice: getpriority_process(None).ok(),
    });
}

/// Binds the calling thread to one CPU, and raises its priority. If the CPU does not exist or is not allowed to us, the affinity
/// does not change; without CAP_SYS_NICE, the priority does not.
pub(crate) fn bind(processor: u16) {
    let mut processors = CpuSet::new();
    processors.set(processor.into());
    sched_setaffinity(None, &processors).ok();
    if let Some(nice) = INHERITED.get().and_then(|usual| usual.nice) {
        // For the calling thread only: on Linux, priorities belong to threads.
        setpriority_process(None, nice - NICE_DIFFERENCE).ok();
    }
}

/// Resets the calling thread, which a bound one may have started, to the recorded affinity and priority.
pub(crate) fn roam() {
    let Some(usual) = INHERITED.get() else { return };
    if let Some(processors) = &usual.processors {
        sched_setaffinity(None, processors).ok();
    }
    if let Some(nice) = usual.nice {
        setpriority_process(None, nice).ok();
    }
}
