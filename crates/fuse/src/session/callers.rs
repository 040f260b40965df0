//! Counts requests by the thread that sent them, in a set-associative table of fixed size. A new caller replaces the least recently
//! active one of its set. Recording takes relaxed atomic operations and no lock. It writes one cache line, which belongs to the caller
//! alone; requests of the kernel itself, such as FORGET, share one, as they share the counters of their operation. The table is lossy:
//! while callers are replaced, counts may be off by some requests.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shunt_sharded::CachePadded;

/// Sets of the table. Consecutive thread ids are in different sets.
const SETS: usize = 64;
/// Callers in a set.
const WAYS: usize = 4;
/// Silence after which counting starts again: the kernel may have given the id to another thread.
const FORGET_AFTER_S: u32 = 60;

/// A caller and its count. Times are in seconds since the start of the session.
#[derive(Debug, Default)]
struct Slot {
    /// The thread id and [`OCCUPIED`] in the lower half, the number of requests modulo 2^32 in the upper half: an addition to the count
    /// that comes after the slot was given to another caller is off by one request, and never mixes two callers. Zero if the slot is
    /// free.
    caller: AtomicU64,
    /// Overflows of the count.
    overflows: AtomicU32,
    uid: AtomicU32,
    first: AtomicU32,
    last: AtomicU32,
}

/// One request in [`Slot::caller`].
const ONE_REQUEST: u64 = 1 << 32;
/// Tells the kernel, which has the thread id 0, from a free slot in [`Slot::caller`]. Ids of threads have at most 22 bits.
const OCCUPIED: u32 = 1 << 31;

/// The callers of a session.
#[derive(Debug)]
pub(crate) struct Callers {
    /// Each slot has cache lines of its own: threads of the session count different callers without disturbing each other.
    slots: Box<[[CachePadded<Slot>; WAYS]]>,
    start: Instant,
}

/// A thread that sent requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerStatistics {
    /// Its thread id, in the PID namespace of the mount. 0: the kernel itself, or a process outside of that namespace.
    pub tid: u32,
    /// The user of its last request, as of the last second with requests.
    pub uid: u32,
    /// Requests since it was first seen. Counting starts again after a minute without a request, and when the caller was replaced
    /// because many others sent requests.
    pub requests: u64,
    /// Time between the first and the last of these requests, in whole seconds.
    pub active: Duration,
    /// Time since the last of these requests, in whole seconds.
    pub idle: Duration,
}

impl Default for Callers {
    fn default() -> Self {
        Self { slots: (0..SETS).map(|_| Default::default()).collect(), start: Instant::now() }
    }
}

impl Callers {
    /// Counts a request that was read at `now`.
    pub(crate) fn record(&self, tid: u32, uid: u32, now: Instant) {
        let seconds = self.seconds(now);
        let key = tid | OCCUPIED;
        let set = &self.slots[tid as usize % SETS];
        for slot in set {
            let caller = slot.caller.load(Ordering::Relaxed);
            if caller as u32 == key {
                slot.count(caller, uid, seconds);
                return;
            }
        }
        // A free slot, or else the least recently active caller; of equally recent ones that with the fewest requests.
        let age = |slot: &&CachePadded<Slot>| {
            let caller = slot.caller.load(Ordering::Relaxed);
            (caller != 0, slot.last.load(Ordering::Relaxed), caller >> 32)
        };
        if let Some(slot) = set.iter().min_by_key(age) {
            slot.start(slot.caller.load(Ordering::Relaxed), u64::from(key) | ONE_REQUEST, uid, seconds);
        }
    }

    /// Returns the callers in the table, in no order.
    pub(crate) fn snapshot(&self) -> Vec<CallerStatistics> {
        let now = self.seconds(Instant::now());
        let mut callers: Vec<CallerStatistics> =
            self.slots.iter().flatten().filter_map(|slot| slot.statistics(now)).collect();
        // Two threads of the session that see a new caller at the same time may give it two slots.
        callers.sort_unstable_by_key(|caller| caller.tid);
        callers.dedup_by(|next, kept| {
            let same = next.tid == kept.tid;
            if same {
                kept.requests += next.requests;
                let since = (kept.active + kept.idle).max(next.active + next.idle);
                kept.idle = kept.idle.min(next.idle);
                kept.active = since - kept.idle;
            }
            same
        });
        callers
    }

    fn seconds(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.start).as_secs() as u32
    }
}

impl Slot {
    /// Counts a request of the caller that has the slot.
    #[inline]
    fn count(&self, caller: u64, uid: u32, seconds: u32) {
        let last = self.last.load(Ordering::Relaxed);
        if last != seconds {
            if seconds.saturating_sub(last) > FORGET_AFTER_S {
                self.start(caller, u64::from(caller as u32) | ONE_REQUEST, uid, seconds);
                return;
            }
            self.last.store(seconds, Ordering::Relaxed);
            self.uid.store(uid, Ordering::Relaxed);
        }
        let before = self.caller.fetch_add(ONE_REQUEST, Ordering::Relaxed);
        if before >> 32 == u64::from(u32::MAX) {
            self.overflows.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gives the slot to a caller, unless another thread of the session changed it meanwhile: then this request is not counted.
    #[cold]
    fn start(&self, old: u64, new: u64, uid: u32, seconds: u32) {
        if self.caller.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.overflows.store(0, Ordering::Relaxed);
            self.uid.store(uid, Ordering::Relaxed);
            self.first.store(seconds, Ordering::Relaxed);
            self.last.store(seconds, Ordering::Relaxed);
        }
    }

    fn statistics(&self, now: u32) -> Option<CallerStatistics> {
        let caller = self.caller.load(Ordering::Relaxed);
        if caller == 0 {
            return None;
        }
        let last = self.last.load(Ordering::Relaxed);
        let seconds = |from: u32, to: u32| Duration::from_secs(to.saturating_sub(from).into());
        Some(CallerStatistics {
            tid: caller as u32 & !OCCUPIED,
            uid: self.uid.load(Ordering::Relaxed),
            requests: (u64::from(self.overflows.load(Ordering::Relaxed)) << 32) + (caller >> 32),
            active: seconds(self.first.load(Ordering::Relaxed), last),
            idle: seconds(last, now),
        })
    }
}

#[cfg(test)]
mod tests {
    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    /// Thread ids of one set.
    fn tid(number: u32) -> u32 {
        7 + number * SETS as u32
    }

    fn at(callers: &Callers, seconds: u64) -> Instant {
        callers.start + Duration::from_secs(seconds)
    }

    fn find(callers: &Callers, tid: u32) -> Option<CallerStatistics> {
        callers.snapshot().into_iter().find(|caller| caller.tid == tid)
    }

    #[test]
    fn a_new_caller_replaces_the_one_silent_for_longest() {
        let callers = Callers::default();
        for number in 0..4 {
            for _ in 0..=number {
                callers.record(tid(number), 1000 + number, at(&callers, number.into()));
            }
        }
        callers.record(0, 0, at(&callers, 0));
        assert_eq!(callers.snapshot().len(), 5);
        let busiest = find(&callers, tid(3)).unwrap();
        assert_eq!((busiest.uid, busiest.requests, busiest.active), (1003, 4, Duration::ZERO));
        callers.record(tid(9), 1, at(&callers, 9));
        assert_eq!(find(&callers, tid(9)).unwrap().requests, 1);
        assert_eq!(find(&callers, tid(0)), None);
        assert!(find(&callers, 0).is_some());
    }

    #[test]
    fn the_table_is_bounded_and_keeps_the_busy_ones() {
        let callers = Callers::default();
        let now = at(&callers, 1);
        for number in 0..10_000 {
            callers.record(5, 0, now);
            callers.record(5, 0, now);
            callers.record(1000 + number, 0, now);
        }
        assert!(callers.snapshot().len() <= SETS * WAYS);
        assert_eq!(find(&callers, 5).unwrap().requests, 20_000);
    }

    #[test]
    fn counting_starts_again_after_a_pause() {
        let callers = Callers::default();
        for seconds in [1, 30, 90] {
            callers.record(5, 1, at(&callers, seconds));
        }
        assert_eq!(find(&callers, 5).unwrap().active, Duration::from_secs(89));
        // The id may belong to another process by now.
        callers.record(5, 2, at(&callers, 151));
        let caller = find(&callers, 5).unwrap();
        assert_eq!((caller.uid, caller.requests, caller.active), (2, 1, Duration::ZERO));
    }

    #[test]
    fn counts_exceed_32_bits() {
        // The kernel, and the largest id.
        for tid in [0, OCCUPIED - 1] {
            let callers = Callers::default();
            callers.record(tid, 0, callers.start);
            let slot = &callers.slots[tid as usize % SETS][0];
            slot.caller.fetch_or(u64::from(u32::MAX) << 32, Ordering::Relaxed);
            callers.record(tid, 0, callers.start);
            callers.record(tid, 0, callers.start);
            assert_eq!(find(&callers, tid).unwrap().requests, (1 << 32) + 1);
        }
    }

    #[test]
    fn threads_count_at_the_same_time() {
        let callers = Callers::default();
        let now = callers.start;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let callers = &callers;
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        callers.record(9, 0, now);
                        callers.record(100 + thread, 0, now);
                    }
                });
            }
        });
        for thread in 0..4 {
            assert_eq!(find(&callers, 100 + thread).unwrap().requests, 10_000);
        }
        let shared = find(&callers, 9).unwrap().requests;
        assert!((39_990..=40_000).contains(&shared), "{shared}");
    }

    /// Prints the cost of a recording: `cargo test --release -p shunt-fuse --lib -- --ignored --nocapture nanoseconds`.
    #[test]
    #[ignore = "a measurement"]
    fn a_recording_takes_nanoseconds() {
        let callers = Callers::default();
        let cpu_ns = || {
            let time = clock_gettime(ClockId::ThreadCPUTime);
            time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
        };
        let rounds = 10_000_000;
        let (now, begun) = (Instant::now(), cpu_ns());
        for _ in 0..rounds {
            callers.record(std::hint::black_box(4711), 0, std::hint::black_box(now));
        }
        println!("{:.1} ns per request", (cpu_ns() - begun) / f64::from(rounds));
    }
}
