//! Device failures, once or permanent: the engine reports them, and data synced before is present after the next mount.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use shunt_ext4::device::{Fault, Faulty, Operation};
use shunt_ext4::{Filesystem, MemoryDevice};

use super::engine;
use super::image::Checker;
use super::model::{self, FsState};
use super::ops::Op;

/// Failure mode of a device, starting at its `n`th write or flush.
#[derive(Debug, Clone, Copy)]
pub enum FailureMode {
    Once(Fault),
    FromThenOn(Fault),
}

/// All failure modes that the device reports.
pub const FAILURE_MODES: [FailureMode; 4] = [
    FailureMode::Once(Fault::Error(Errno::IO)),
    FailureMode::Once(Fault::Torn(512)),
    FailureMode::FromThenOn(Fault::Error(Errno::IO)),
    FailureMode::FromThenOn(Fault::Error(Errno::NOSPC)),
];

/// Runs a workload on a device that fails at write or flush `n`. Returns whether that point was reached.
pub fn survives(
    base: &[u8],
    ops: &[Op],
    n: u64,
    way: FailureMode,
    checker: &mut Checker,
) -> Result<bool, String> {
    let writes = Arc::new(AtomicU64::new(0));
    let count = writes.clone();
    let plan = move |_, operation| {
        if !matches!(operation, Operation::Write(..) | Operation::Flush) {
            return None;
        }
        let now = count.fetch_add(1, Ordering::Relaxed);
        match way {
            FailureMode::Once(fault) => (now == n).then_some(fault),
            FailureMode::FromThenOn(fault) => (now >= n).then_some(fault),
        }
    };
    let memory = Arc::new(MemoryDevice::new(base.to_vec()));
    let device = Arc::new(Faulty::new(memory.clone(), plan));
    let mut states = vec![FsState::new()];
    if let Ok(fs) = Filesystem::open_writable(device) {
        let mut failed = false;
        for (number, &op) in ops.iter().chain(&[Op::Sync]).enumerate() {
            let mut state = states.last().expect("there is an initial state").clone();
            if state.apply(op, number).is_none() {
                continue;
            }
            match engine::apply(&fs, op, number) {
                Ok(()) if op == Op::Sync => states = vec![state],
                Ok(()) => states.push(state),
                // The operation may have taken effect nevertheless. Later ones need not.
                Err(_) => {
                    let before = states.last().expect("there is an initial state").clone();
                    states.extend(parts(&before, op, number));
                    states.push(state);
                    failed = true;
                    break;
                }
            }
        }
        if fs.close().is_ok() && !failed {
            states.drain(..states.len() - 1);
        }
    }
    let came = writes.load(Ordering::Relaxed) > n;
    // The next mount, on a working device.
    let to_text = |error: shunt_ext4::Error| error.to_string();
    let device = Arc::new(MemoryDevice::new(memory.bytes()));
    let fs = Filesystem::open_writable(device.clone()).map_err(to_text)?;
    model::is_one_of(&engine::look(&fs).map_err(to_text)?, &states)?;
    fs.close().map_err(to_text)?;
    checker.is_clean(&device.bytes())?;
    Ok(came)
}

/// Returns the possible states after a write that failed after some of its blocks.
fn parts(before: &FsState, op: Op, number: usize) -> Vec<FsState> {
    let (path, offset, length) = match op {
        Op::Write(path, offset, length) => (path, offset, length),
        Op::Append(path, length) => (path, before.size(path), length),
        _ => return Vec::new(),
    };
    let ends = (offset + 1..offset + length).filter(|end| end % 1024 == 0);
    let part = |end| {
        let mut state = before.clone();
        state.apply(Op::Write(path, offset, end - offset), number);
        state
    };
    ends.map(part).collect()
}
