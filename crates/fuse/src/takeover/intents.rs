//! Intent records: operations that must not run twice, and that a server had begun when it ended. A record is written before the
//! operation and cleared after the reply.
//!
//! | word | meaning |
//! |---|---|
//! | 0 | unique of the request, 0 while the slot is free. Written last, cleared first |
//! | 1 | takeovers when it was written |
//! | 2 | outcome: 0 not known, 1 done, 2 + n failed with errno n |
//! | 3 | instant at which it began, nanoseconds of the coarse real-time clock |
//! | 4 to 7 | what the file system noted before it began |

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::state::{MAX_INTENTS, TakeoverState};

/// The state that a file system records before it begins an operation that must not run twice.
pub type IntentData = [u64; 4];

/// An operation that an earlier server had begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BegunOperation {
    /// The state recorded before the operation.
    pub before: IntentData,
    /// Its start in nanoseconds since the epoch, by the clock that file systems use for their timestamps.
    pub since: u64,
    /// Its outcome, if it was recorded: success, or the error with which the operation failed.
    pub outcome: Option<Result<(), Errno>>,
}

/// Number of takeovers after which an intent is dropped if the kernel did not resend its request: it had received the reply.
const MAX_INTENT_TAKEOVERS: u64 = 8;

#[derive(Debug)]
pub(super) struct Intents {
    in_use: Box<[AtomicBool]>,
    inherited: Mutex<HashMap<u64, (usize, BegunOperation)>>,
    takeovers: u64,
}

thread_local! {
    /// The slot that this thread used last: most likely it is free again.
    static LAST_SLOT: Cell<usize> = const { Cell::new(0) };
}

impl Intents {
    /// Reads the intents of an earlier server.
    pub(super) fn read(state: &TakeoverState, takeovers: u64) -> Self {
        let taken: Box<[AtomicBool]> = (0..MAX_INTENTS).map(|_| AtomicBool::new(false)).collect();
        let mut inherited = HashMap::new();
        for slot in 0..MAX_INTENTS {
            let words = state.intent(slot);
            let word = |index: usize| words[index].load(Ordering::Relaxed);
            let unique = word(0);
            if unique == 0 {
                continue;
            }
            if takeovers.saturating_sub(word(1)) > MAX_INTENT_TAKEOVERS {
                words[0].store(0, Ordering::Release);
                continue;
            }
            let outcome = match word(2) {
                0 => None,
                1 => Some(Ok(())),
                code => i32::try_from(code - 2)
                    .ok()
                    .filter(|errno| (1..512).contains(errno))
                    .map(|errno| Err(Errno::from_raw_os_error(errno))),
            };
            let before = [word(4), word(5), word(6), word(7)];
            taken[slot].store(true, Ordering::Relaxed);
            inherited.insert(unique, (slot, BegunOperation { before, since: word(3), outcome }));
        }
        Self { in_use: taken, inherited: Mutex::new(inherited), takeovers }
    }

    /// Takes the intent of an earlier server for this request; the caller now owns its slot.
    pub(super) fn inherit(&self, unique: u64) -> Option<(usize, BegunOperation)> {
        self.inherited.lock().remove(&unique)
    }

    /// Writes an intent and returns its slot. `None` where all slots are in use: the operation then runs without an intent.
    pub(super) fn begin(&self, state: &TakeoverState, unique: u64, before: IntentData) -> Option<usize> {
        let first = LAST_SLOT.get();
        let free = |slot: &usize| !self.in_use[*slot].swap(true, Ordering::Acquire);
        let slot = (0..MAX_INTENTS).map(|step| (first + step) % MAX_INTENTS).find(free)?;
        LAST_SLOT.set(slot);
        let words = state.intent(slot);
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let since = (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64);
        let values = [self.takeovers, 0, since, before[0], before[1], before[2], before[3]];
        for (word, value) in words[1..].iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        words[0].store(unique, Ordering::Release);
        Some(slot)
    }

    pub(super) fn end(&self, state: &TakeoverState, slot: usize, result: Result<(), Errno>) {
        let outcome = match result {
            Ok(()) => 1,
            Err(errno) => 2 + errno.raw_os_error() as u64,
        };
        state.intent(slot)[2].store(outcome, Ordering::Release);
    }

    pub(super) fn clear(&self, state: &TakeoverState, slot: usize) {
        state.intent(slot)[0].store(0, Ordering::Release);
        self.in_use[slot].store(false, Ordering::Release);
    }
}
