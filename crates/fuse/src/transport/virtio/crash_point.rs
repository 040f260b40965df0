//! Points at which tests kill the process: between two stores of which a later daemon may find only the first. Without the test
//! driver they are nothing.

/// A point in the life of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Removed from the available ring, and not recorded yet.
    Take,
    /// Recorded, and not executed.
    Taken,
    /// Executed; the reply is not in the guest's memory yet.
    Executed,
    /// The reply is in the guest's memory, and the chain not in the used ring.
    Replied,
    /// In the used ring, and still recorded as in flight.
    Used,
    /// No longer in flight, with the old index of the used ring on record.
    Clear,
    /// Returned, and the guest was not notified.
    Notify,
}

#[cfg(not(any(test, feature = "test-driver")))]
pub(crate) fn crash_point(_: Step) {}

#[cfg(any(test, feature = "test-driver"))]
pub(crate) use armed::crash_point;

#[cfg(any(test, feature = "test-driver"))]
pub(crate) mod armed {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::Step;

    /// The step in the upper half, and how often it is still passed in the lower half; 0: never killed.
    static ARMED: AtomicU64 = AtomicU64::new(0);

    /// Kills this process by SIGKILL when it passes the step for the `count`th time, from 1.
    #[cfg(test)]
    pub(crate) fn arm(step: Step, count: u32) {
        ARMED.store((step as u64) << 32 | u64::from(count), Ordering::SeqCst);
    }

    pub(crate) fn crash_point(step: Step) {
        let armed = ARMED.load(Ordering::SeqCst);
        if armed as u32 == 0 || armed >> 32 != step as u64 {
            return;
        }
        if ARMED.fetch_sub(1, Ordering::SeqCst) as u32 == 1 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}
