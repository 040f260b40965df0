//! Synchronisation yields to foreground operations.
//!
//! Both need the lock of the database, and synchronisation holds it longer. Under foreground load synchronisation waits:
//! until a burst of changes is over, most of which is often undone at its end, or for `MAX_YIELD`. It does not wait while
//! peers wait for changes of this node.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

/// Longest time that a push waits for the end of a burst.
pub(crate) const MAX_BURST_DELAY: Duration = Duration::from_secs(2);
/// Longest time that synchronisation yields between two turns, under continuous load.
pub(crate) const MAX_YIELD: Duration = Duration::from_millis(100);

/// Sampling interval of the foreground-load detector.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
/// More operations than this in a sampling interval are a burst: 2,000 a second.
const BUSY_THRESHOLD: u64 = 10;
/// Consecutive samples below the threshold that end a burst: on a busy machine a user may have to wait for a processor.
const IDLE_SAMPLES: u32 = 4;

/// Detects foreground load on the database.
#[derive(Default)]
pub(crate) struct ForegroundLoad {
    /// Set while a foreground operation may run concurrently with synchronisation.
    enabled: bool,
    requests: AtomicU64,
    waiting: AtomicU32,
    /// A foreground operation had to wait, or the load was high, in the last sample.
    contended: AtomicBool,
    urgent: AtomicBool,
    /// The time of the last wait, and the number of operations at that time.
    last_sample: Mutex<Option<(Instant, u64)>>,
}

impl ForegroundLoad {
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled, ..Self::default() }
    }

    /// Locks a mutex for a foreground operation.
    pub(crate) fn lock_foreground<'a, T>(&self, what: &'a Mutex<T>) -> MutexGuard<'a, T> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if let Some(db) = what.try_lock() {
            return db;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let db = what.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        db
    }

    /// Records whether a foreground operation is waiting for the lock that synchronisation is about to release.
    pub(crate) fn sample(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.contended.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_urgent(&self, urgent: bool) {
        self.urgent.store(urgent, Ordering::Relaxed);
    }

    /// Reports whether a push may wait for users.
    pub(crate) fn may_yield(&self) -> bool {
        self.enabled && !self.urgent.load(Ordering::Relaxed)
    }

    /// Waits while the foreground load is high, at most for `limit`.
    pub(crate) fn yield_to_foreground(&self, limit: Duration) {
        if self.enabled {
            self.wait(limit, || std::thread::sleep(SAMPLE_INTERVAL));
        }
    }

    /// Waits until the foreground load is low, as long as `may_continue` and at most for `limit`; for background work.
    pub(crate) fn wait_until_idle(&self, limit: Duration, may_continue: impl Fn() -> bool) {
        let begun = Instant::now();
        self.sample_until_idle(
            || begun.elapsed() < limit && may_continue(),
            || std::thread::sleep(SAMPLE_INTERVAL),
        );
    }

    /// Samples until the load is low. Returns whether it is.
    fn sample_until_idle(&self, may_continue: impl Fn() -> bool, sleep: impl Fn()) -> bool {
        let mut quiet = 0;
        while quiet < IDLE_SAMPLES && may_continue() {
            let before = self.requests.load(Ordering::Relaxed);
            sleep();
            let few = self.requests.load(Ordering::Relaxed) - before <= BUSY_THRESHOLD;
            quiet = if few { quiet + 1 } else { 0 };
        }
        quiet == IDLE_SAMPLES
    }

    fn wait(&self, limit: Duration, sleep: impl Fn()) {
        let begun = Instant::now();
        let was_contended = self.contended.swap(false, Ordering::Relaxed) || self.was_contended(begun);
        let may_continue = || begun.elapsed() < limit && !self.urgent.load(Ordering::Relaxed);
        let is_quiet = !was_contended || self.sample_until_idle(may_continue, sleep);
        *self.last_sample.lock() = Some((Instant::now(), self.requests.load(Ordering::Relaxed)));
        // An unfinished burst has priority the next time, too.
        self.contended.store(!is_quiet, Ordering::Relaxed);
    }

    /// Reports whether the load was high since the last wait.
    fn was_contended(&self, now: Instant) -> bool {
        let requests = self.requests.load(Ordering::Relaxed);
        let Some((then, before)) = *self.last_sample.lock() else { return requests > BUSY_THRESHOLD };
        let samples = now.saturating_duration_since(then).as_secs_f64() / SAMPLE_INTERVAL.as_secs_f64();
        (requests - before) as f64 > BUSY_THRESHOLD as f64 * samples.clamp(1.0, 100.0)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const NEVER_REACHED_TIMEOUT: Duration = Duration::from_secs(3600);

    /// Returns the number of samples, with `asked` operations during each of the first ones.
    fn count_samples(load: &ForegroundLoad, limit: Duration, asked: &[u64], then: impl Fn(usize)) -> usize {
        let samples = Cell::new(0);
        load.wait(limit, || {
            let more = asked.get(samples.get()).copied().unwrap_or_default();
            load.requests.fetch_add(more, Ordering::Relaxed);
            samples.set(samples.get() + 1);
            then(samples.get());
        });
        samples.get()
    }

    #[test]
    fn nobody_is_waited_for_who_asks_little() {
        let load = ForegroundLoad::new(true);
        drop(load.lock_foreground(&Mutex::new(())));
        assert_eq!(count_samples(&load, NEVER_REACHED_TIMEOUT, &[], |_| {}), 0);
    }

    #[test]
    fn a_burst_goes_first_until_it_ends() {
        let load = ForegroundLoad::new(true);
        load.requests.store(1000, Ordering::Relaxed);
        // The burst pauses once, for fewer samples than end it.
        assert_eq!(
            count_samples(&load, NEVER_REACHED_TIMEOUT, &[100, 100, 0, 0, 100], |_| {}),
            5 + IDLE_SAMPLES as usize
        );
        assert_eq!(count_samples(&load, NEVER_REACHED_TIMEOUT, &[], |_| {}), 0);
    }

    #[test]
    fn one_who_had_to_wait_goes_first() {
        let load = ForegroundLoad::new(true);
        load.waiting.store(1, Ordering::Relaxed);
        load.sample();
        assert_eq!(count_samples(&load, NEVER_REACHED_TIMEOUT, &[], |_| {}), IDLE_SAMPLES as usize);
    }

    #[test]
    fn others_wait_neither_for_ever_nor_while_they_are_waited_for() {
        let load = ForegroundLoad::new(true);
        load.requests.store(1000, Ordering::Relaxed);
        assert_eq!(count_samples(&load, Duration::ZERO, &[100; 100], |_| {}), 0);
        assert_eq!(count_samples(&load, NEVER_REACHED_TIMEOUT, &[100; 100], |n| load.set_urgent(n == 3)), 3);
    }
}
