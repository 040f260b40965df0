//! Detects a single caller that waits for each reply before its next request, for which one thread is enough.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The callers since the last sample of the watch.
#[derive(Debug, Default)]
pub(super) struct SingleClient {
    last_caller: AtomicU32,
    several: AtomicBool,
    /// A thread found its next request pending already.
    pressed: AtomicBool,
}

impl SingleClient {
    /// Records the thread that made a request; 0 stands for no particular thread.
    pub(super) fn record_caller(&self, thread: u32) {
        if thread != 0 && self.last_caller.load(Ordering::Relaxed) != thread {
            self.last_caller.store(thread, Ordering::Relaxed);
            self.several.store(true, Ordering::Relaxed);
        }
    }

    /// Records whether the next request was pending already when a thread had answered the one before.
    pub(super) fn record_pressure(&self, pressed: bool) {
        if self.pressed.load(Ordering::Relaxed) != pressed {
            self.pressed.store(pressed, Ordering::Relaxed);
        }
    }

    /// Reports whether a single caller made all requests since the last call, each after its previous reply.
    pub(super) fn is_one(&self) -> bool {
        !self.several.swap(false, Ordering::Relaxed) && !self.pressed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_who_waits_is_one() {
        let callers = SingleClient::default();
        callers.record_caller(7);
        assert!(!callers.is_one(), "the previous caller is unknown");
        (0..3).for_each(|_| callers.record_caller(7));
        callers.record_caller(0);
        assert!(callers.is_one());
        callers.record_pressure(true);
        assert!(!callers.is_one(), "several requests are in flight");
        callers.record_pressure(false);
        callers.record_caller(8);
        assert!(!callers.is_one());
    }
}
