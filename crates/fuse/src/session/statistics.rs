//! Counts and latencies per operation, in logarithmic histograms. Recording takes relaxed atomic operations and no lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shunt_fuse_abi::Opcode;
use shunt_sharded::CachePadded;

/// Upper bounds of the buckets of [`OperationStatistics::latency`], as powers of two of nanoseconds: each from 1 µs to 1 ms, every
/// other one up to 17 s.
const LATENCY_POWERS: [u32; LATENCY_BOUNDS_COUNT] =
    [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 24, 26, 28, 30, 32, 34];
const LATENCY_BOUNDS_COUNT: usize = 18;

/// Returns the upper bounds of the buckets of [`OperationStatistics::latency`], in ascending order. The last bucket has no bound.
pub fn latency_bounds() -> [Duration; LATENCY_BOUNDS_COUNT] {
    LATENCY_POWERS.map(|power| Duration::from_nanos(1 << power))
}

/// Buckets per power of two: percentiles are exact to within a quarter.
const BUCKETS_PER_POWER: u32 = 4;
/// Number of powers of two of nanoseconds covered: up to about 18 minutes.
const POWERS_OF_TWO: u32 = 40;
const BUCKETS: usize = (BUCKETS_PER_POWER * POWERS_OF_TWO) as usize;

struct Operation {
    errors: AtomicU64,
    slowest: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Operation {
    fn default() -> Self {
        Self {
            errors: AtomicU64::new(0),
            slowest: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// Counters of a session. All are relaxed: a snapshot is not one instant.
pub(crate) struct Statistics {
    operations: Box<[Operation]>,
    passthrough_opens: AtomicU64,
    cancelled: AtomicU64,
    malformed: AtomicU64,
    /// Apart from the pointer to `operations`, which every request reads.
    transferred: CachePadded<Transferred>,
}

/// Bytes of file data that passed through the daemon.
#[derive(Default)]
struct Transferred {
    read: AtomicU64,
    written: AtomicU64,
    zero_copied: AtomicU64,
}

impl std::fmt::Debug for Statistics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Statistics").finish_non_exhaustive()
    }
}

impl Default for Statistics {
    fn default() -> Self {
        Self {
            operations: (0..Opcode::COUNT).map(|_| Operation::default()).collect(),
            passthrough_opens: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
            transferred: CachePadded::default(),
        }
    }
}

fn bucket(nanoseconds: u64) -> usize {
    let value = nanoseconds.max(BUCKETS_PER_POWER.into());
    let power = value.ilog2();
    let quarter = (value >> (power - BUCKETS_PER_POWER.ilog2())) as u32 - BUCKETS_PER_POWER;
    ((power - BUCKETS_PER_POWER.ilog2()) * BUCKETS_PER_POWER + quarter).min(BUCKETS as u32 - 1) as usize
}

/// Returns the upper end of a bucket in nanoseconds.
fn bucket_end(index: usize) -> u64 {
    let (power, quarter) =
        (index as u64 / u64::from(BUCKETS_PER_POWER), index as u64 % u64::from(BUCKETS_PER_POWER));
    (u64::from(BUCKETS_PER_POWER) + quarter + 1) << power
}

impl Statistics {
    pub(crate) fn record(&self, opcode: Opcode, time: Duration, failed: bool) {
        let nanoseconds = time.as_nanos().min(u64::MAX.into()) as u64;
        let operation = &self.operations[opcode.index()];
        operation.buckets[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        if operation.slowest.load(Ordering::Relaxed) < nanoseconds {
            operation.slowest.fetch_max(nanoseconds, Ordering::Relaxed);
        }
        if failed {
            operation.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn passthrough_open(&self) {
        self.passthrough_opens.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn cancelled(&self) {
        self.cancelled.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn malformed(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read_bytes(&self, bytes: u64) {
        self.transferred.read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn written_bytes(&self, bytes: u64) {
        self.transferred.written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn zero_copied_bytes(&self, bytes: u64) {
        self.transferred.zero_copied.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let operations = Opcode::ALL
            .iter()
            .filter_map(|&opcode| {
                let operation = &self.operations[opcode.index()];
                let buckets: Vec<u64> = operation.buckets.iter().map(|b| b.load(Ordering::Relaxed)).collect();
                let count = buckets.iter().sum();
                let slowest = Duration::from_nanos(operation.slowest.load(Ordering::Relaxed));
                (count > 0).then(|| OperationStatistics {
                    opcode,
                    count,
                    errors: operation.errors.load(Ordering::Relaxed),
                    slowest,
                    p50: percentile(&buckets, count, 50).min(slowest),
                    p99: percentile(&buckets, count, 99).min(slowest),
                    total: total(&buckets),
                    latency: latency(&buckets),
                })
            })
            .collect();
        Snapshot {
            operations,
            passthrough_opens: self.passthrough_opens.load(Ordering::Relaxed),
            cancelled: self.cancelled.load(Ordering::Relaxed),
            malformed: self.malformed.load(Ordering::Relaxed),
            read_bytes: self.transferred.read.load(Ordering::Relaxed),
            written_bytes: self.transferred.written.load(Ordering::Relaxed),
            zero_copied_bytes: self.transferred.zero_copied.load(Ordering::Relaxed),
        }
    }
}

fn percentile(buckets: &[u64], count: u64, percent: u64) -> Duration {
    let rank = (count * percent).div_ceil(100);
    let mut seen = 0;
    for (index, n) in buckets.iter().enumerate() {
        seen += n;
        if seen >= rank {
            return Duration::from_nanos(bucket_end(index));
        }
    }
    Duration::ZERO
}

/// Estimates the sum of all times: each counts as the middle of its bucket. A sum kept exactly would cost every request a write to
/// a cache line that all threads share.
fn total(buckets: &[u64]) -> Duration {
    let middle = |index: usize| {
        let start = if index == 0 { 0 } else { bucket_end(index - 1) };
        start.midpoint(bucket_end(index))
    };
    let nanoseconds = buckets.iter().enumerate().fold(0u64, |sum, (index, count)| {
        if *count == 0 { sum } else { sum.saturating_add(middle(index).saturating_mul(*count)) }
    });
    Duration::from_nanos(nanoseconds)
}

/// Sums the buckets between the bounds of [`latency_bounds`].
fn latency(buckets: &[u64]) -> [u64; LATENCY_BOUNDS_COUNT + 1] {
    let mut counts = [0; LATENCY_BOUNDS_COUNT + 1];
    for (index, count) in buckets.iter().enumerate() {
        let end = bucket_end(index);
        let bound = LATENCY_POWERS.partition_point(|power| (1 << power) < end);
        counts[bound] += count;
    }
    counts
}

/// Statistics of one operation.
#[derive(Debug, Clone)]
pub struct OperationStatistics {
    /// The operation.
    pub opcode: Opcode,
    /// Requests handled.
    pub count: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Median time in the handler (to within a quarter).
    pub p50: Duration,
    /// 99th percentile.
    pub p99: Duration,
    /// Maximum.
    pub slowest: Duration,
    /// Sum of all times, estimated from a histogram: at most an eighth off.
    pub total: Duration,
    /// Number of requests in each bucket of [`latency_bounds`], not cumulative; the last one counts all slower ones.
    pub latency: [u64; LATENCY_BOUNDS_COUNT + 1],
}

/// Statistics of a session.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Operations that were requested at least once.
    pub operations: Vec<OperationStatistics>,
    /// Opens whose data the kernel reads and writes itself.
    pub passthrough_opens: u64,
    /// Requests cancelled because the caller was interrupted.
    pub cancelled: u64,
    /// Messages that could not be parsed.
    pub malformed: u64,
    /// Bytes in replies to READ. Reads of passed-through files do not reach the daemon.
    pub read_bytes: u64,
    /// Bytes accepted by WRITE. Writes of passed-through files do not reach the daemon.
    pub written_bytes: u64,
    /// The part of `read_bytes` and `written_bytes` in requests whose data stayed in the kernel's pages:
    /// [`Opened::zero_copy`](crate::Opened::zero_copy).
    pub zero_copied_bytes: u64,
}

impl Snapshot {
    /// Returns the number of requests of all kinds.
    pub fn total(&self) -> u64 {
        self.operations.iter().map(|operation| operation.count).sum()
    }

    /// Returns the number of requests of one operation.
    pub fn count(&self, opcode: Opcode) -> u64 {
        self.operations
            .iter()
            .find(|operation| operation.opcode == opcode)
            .map_or(0, |operation| operation.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_value_to_within_a_quarter() {
        for value in (4..2_000_000u64).step_by(37) {
            let end = bucket_end(bucket(value));
            assert!(end > value && end <= value + value / 4 + 1, "{value} in a bucket up to {end}");
        }
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn latencies_are_counted_below_their_bounds() {
        let statistics = Statistics::default();
        let times = [1, 1_023, 1_024, 3_000, 1_048_575, 5_000_000, 17_000_000_000, 18_000_000_000];
        for time in times {
            statistics.record(Opcode::Read, Duration::from_nanos(time), false);
        }
        let read = statistics.snapshot().operations.remove(0);
        assert_eq!(read.latency.iter().sum::<u64>(), read.count);
        for (index, bound) in latency_bounds().iter().enumerate() {
            let below = times.iter().filter(|time| u128::from(**time) < bound.as_nanos()).count() as u64;
            assert_eq!(read.latency[..=index].iter().sum::<u64>(), below, "{bound:?}");
        }
        let exact: u64 = times.iter().sum();
        let error = (read.total.as_nanos() as f64 - exact as f64).abs() / exact as f64;
        assert!(error <= 0.125, "{error}");
    }

    #[test]
    fn percentiles_come_from_the_right_ranks() {
        let statistics = Statistics::default();
        for n in 0..100 {
            let time = if n < 98 { 1_000 } else { 1_000_000 };
            statistics.record(Opcode::Lookup, Duration::from_nanos(time), n == 99);
        }
        let snapshot = statistics.snapshot();
        let lookup = &snapshot.operations[0];
        assert_eq!((lookup.count, lookup.errors), (100, 1));
        assert!(lookup.p50 >= Duration::from_nanos(1_000) && lookup.p50 <= Duration::from_nanos(1_280));
        assert!(lookup.p99 >= Duration::from_micros(900) && lookup.slowest == Duration::from_millis(1));
    }
}
