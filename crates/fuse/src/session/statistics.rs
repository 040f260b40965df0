//! Counts and latencies per operation, in logarithmic histograms. Recording takes relaxed atomic operations and no lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shunt_fuse_abi::Opcode;

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
                })
            })
            .collect();
        Snapshot {
            operations,
            passthrough_opens: self.passthrough_opens.load(Ordering::Relaxed),
            cancelled: self.cancelled.load(Ordering::Relaxed),
            malformed: self.malformed.load(Ordering::Relaxed),
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
