//! Counters of a gateway: connections, and requests by operation with latencies. Recording takes relaxed atomic operations and no
//! lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::protocol::Request;

/// Upper bounds of the latency buckets. The last bucket, above these, has no bound.
pub const LATENCY_BOUNDS: [Duration; 14] = [
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2500),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

const BUCKET_COUNT: usize = LATENCY_BOUNDS.len() + 1;

/// Names of the operations, by [`index`].
const OPERATIONS: [&str; 17] = [
    "head",
    "commit",
    "get",
    "scan",
    "log_since",
    "places",
    "known",
    "wait",
    "put_blob",
    "get_blob",
    "stat_blob",
    "delete_blob",
    "list_blobs",
    "lease",
    "wait_lease",
    "history",
    "path",
];

/// Returns the index of an operation in [`OPERATIONS`]. A request in the name of another node counts as the same operation.
pub(super) fn index(request: &Request) -> usize {
    match request {
        Request::Head => 0,
        Request::Commit { .. } | Request::CommitOf { .. } => 1,
        Request::Get(_) => 2,
        Request::Scan { .. } => 3,
        Request::LogSince { .. } => 4,
        Request::Places(_) => 5,
        Request::Known(_) => 6,
        Request::Wait { .. } => 7,
        Request::PutBlob { .. } => 8,
        Request::GetBlob { .. } => 9,
        Request::StatBlob { .. } => 10,
        Request::DeleteBlob { .. } => 11,
        Request::ListBlobs { .. } => 12,
        Request::Lease(_) | Request::LeaseOf(..) => 13,
        Request::WaitLease { .. } => 14,
        Request::History(_) => 15,
        Request::Path => 16,
    }
}

#[derive(Debug, Default)]
struct Operation {
    errors: AtomicU64,
    total_us: AtomicU64,
    buckets: [AtomicU64; BUCKET_COUNT],
}

/// The counters of a gateway.
#[derive(Debug, Default)]
pub struct GatewayStatistics {
    operations: [Operation; OPERATIONS.len()],
    connections: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
}

/// The requests of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayOperation {
    /// Its name, such as `get_blob`.
    pub name: &'static str,
    /// Requests answered.
    pub count: u64,
    /// Requests answered with a failure.
    pub errors: u64,
    /// Sum of the times from a request to its response.
    pub total: Duration,
    /// Number of requests in each bucket of [`LATENCY_BOUNDS`], not cumulative; the last one counts all slower ones.
    pub latency: [u64; BUCKET_COUNT],
}

/// The state of the counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewaySnapshot {
    /// Operations that were requested at least once.
    pub operations: Vec<GatewayOperation>,
    /// Open connections of known nodes.
    pub connections: u64,
    /// Connections of known nodes since the start.
    pub accepted: u64,
    /// Connections refused before the handshake, because too many were pending.
    pub refused: u64,
    /// Bytes of contents received.
    pub received_bytes: u64,
    /// Bytes of contents sent.
    pub sent_bytes: u64,
}

impl GatewayStatistics {
    pub(super) fn record(&self, operation: usize, time: Duration, failed: bool) {
        let operation = &self.operations[operation];
        let bucket = LATENCY_BOUNDS.partition_point(|bound| *bound < time);
        operation.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let microseconds = time.as_micros().min(u64::MAX.into()) as u64;
        operation.total_us.fetch_add(microseconds, Ordering::Relaxed);
        if failed {
            operation.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a connection until the returned value is dropped.
    pub(super) fn connected(&self) -> OpenConnection<'_> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.connections.fetch_add(1, Ordering::Relaxed);
        OpenConnection(&self.connections)
    }

    /// Returns the state of the counters. It is not one instant.
    pub fn snapshot(&self) -> GatewaySnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let operations = self.operations.iter().zip(OPERATIONS).filter_map(|(operation, name)| {
            let latency = std::array::from_fn(|bucket| read(&operation.buckets[bucket]));
            let count = latency.iter().sum();
            let total = Duration::from_micros(read(&operation.total_us));
            (count > 0).then(|| GatewayOperation {
                name,
                count,
                errors: read(&operation.errors),
                total,
                latency,
            })
        });
        GatewaySnapshot {
            operations: operations.collect(),
            connections: read(&self.connections),
            accepted: read(&self.accepted),
            refused: read(&self.refused),
            received_bytes: read(&self.received_bytes),
            sent_bytes: read(&self.sent_bytes),
        }
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) struct OpenConnection<'a>(&'a AtomicU64);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_operation_and_latency() {
        let statistics = GatewayStatistics::default();
        statistics.record(index(&Request::Head), Duration::from_millis(1), false);
        statistics.record(index(&Request::Head), Duration::from_secs(60), true);
        let snapshot = statistics.snapshot();
        let [head] = &snapshot.operations[..] else { panic!("{snapshot:?}") };
        assert_eq!((head.name, head.count, head.errors), ("head", 2, 1));
        assert_eq!((head.latency[1], head.latency[BUCKET_COUNT - 1]), (1, 1));
        assert_eq!(head.total, Duration::from_millis(60_001));
        {
            let _open = statistics.connected();
            assert_eq!(statistics.snapshot().connections, 1);
        }
        assert_eq!((statistics.snapshot().connections, statistics.snapshot().accepted), (0, 1));
    }
}
