//! Synchronisation gives way to users.
//!
//! Both need the database, one at a time, and what synchronisation does with it takes longer. While users ask much it waits:
//! until they have a burst of changes behind them, most of which is often undone by then, or for so long as is bearable.
//! It never waits while other nodes wait for it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

/// How long a burst is let go first before anything of it is sent.
pub(crate) const MAX_BURST_DELAY: Duration = Duration::from_secs(2);
/// How long users go first between two turns of synchronisation, where they do not end.
pub(crate) const MAX_YIELD: Duration = Duration::from_millis(100);

/// It is looked so often whether they go on.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
/// More than so many questions between two looks are a burst: 2,000 a second.
const BUSY_THRESHOLD: u64 = 10;
/// So many looks in a row have to see less before it is over: on a busy machine a user may have to wait for a processor.
const IDLE_SAMPLES: u32 = 4;

/// Who asks the database.
#[derive(Default)]
pub(crate) struct ForegroundLoad {
    /// Users are there while it is synchronised: there is somebody to give way to.
    enabled: bool,
    requests: AtomicU64,
    waiting: AtomicU32,
    /// Somebody waited, or asked much, when that was last looked at.
    contended: AtomicBool,
    urgent: AtomicBool,
    /// When, and how many had asked then.
    last_sample: Mutex<Option<(Instant, u64)>>,
}

impl ForegroundLoad {
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled: enabled, ..Self::default() }
    }

    /// What is under the lock, for a user.
    pub(crate) fn lock_foreground<'a, T>(&self, what: &'a Mutex<T>) -> MutexGuard<'a, T> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if let Some(core) = what.try_lock() {
            return core;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let core = what.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        core
    }

    /// Synchronisation is about to leave the lock: does somebody wait?
    pub(crate) fn sample(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.contended.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_urgent(&self, urgent: bool) {
        self.urgent.store(urgent, Ordering::Relaxed);
    }

    /// Whether what is sent may wait for users.
    pub(crate) fn may_yield(&self) -> bool {
        self.enabled && !self.urgent.load(Ordering::Relaxed)
    }

    /// Waits while users ask much; for so long at most.
    pub(crate) fn yield_to_foreground(&self, most: Duration) {
        if self.enabled {
            self.wait(most, || std::thread::sleep(SAMPLE_INTERVAL));
        }
    }

    /// Waits until users ask little, as long as `goes_on`; for work that nobody waits for.
    pub(crate) fn wait_until_idle(&self, most: Duration, goes_on: impl Fn() -> bool) {
        let begun = Instant::now();
        self.watch(|| begun.elapsed() < most && goes_on(), || std::thread::sleep(SAMPLE_INTERVAL));
    }

    /// Looks until it is quiet. Whether it is.
    fn watch(&self, goes_on: impl Fn() -> bool, sleep: impl Fn()) -> bool {
        let mut quiet = 0;
        while quiet < IDLE_SAMPLES && goes_on() {
            let before = self.requests.load(Ordering::Relaxed);
            sleep();
            let few = self.requests.load(Ordering::Relaxed) - before <= BUSY_THRESHOLD;
            quiet = if few { quiet + 1 } else { 0 };
        }
        quiet == IDLE_SAMPLES
    }

    fn wait(&self, most: Duration, sleep: impl Fn()) {
        let begun = Instant::now();
        let was_dense = self.contended.swap(false, Ordering::Relaxed) || self.was_contended(begun);
        let goes_on = || begun.elapsed() < most && !self.urgent.load(Ordering::Relaxed);
        let is_quiet = !was_dense || self.watch(goes_on, sleep);
        *self.last_sample.lock() = Some((Instant::now(), self.requests.load(Ordering::Relaxed)));
        // One who is not finished is let go first the next time, too.
        self.contended.store(!is_quiet, Ordering::Relaxed);
    }

    /// Whether much was asked since the last time.
    fn was_contended(&self, now: Instant) -> bool {
        let asked = self.requests.load(Ordering::Relaxed);
        let Some((then, before)) = *self.last_sample.lock() else { return asked > BUSY_THRESHOLD };
        let looks = now.saturating_duration_since(then).as_secs_f64() / SAMPLE_INTERVAL.as_secs_f64();
        (asked - before) as f64 > BUSY_THRESHOLD as f64 * looks.clamp(1.0, 100.0)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const NEVER_REACHED_TIMEOUT: Duration = Duration::from_secs(3600);

    /// How often it is looked, while so many ask before each of the first looks.
    fn count_samples(load: &ForegroundLoad, most: Duration, asked: &[u64], then: impl Fn(usize)) -> usize {
        let looks = Cell::new(0);
        load.wait(most, || {
            let more = asked.get(looks.get()).copied().unwrap_or_default();
            load.requests.fetch_add(more, Ordering::Relaxed);
            looks.set(looks.get() + 1);
            then(looks.get());
        });
        looks.get()
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
        // It pauses once, for less than it takes to believe in its end.
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
