//! Latency percentiles of the requests between two readings, from the daemons' histograms.

use serde::Serialize;

/// Percentiles of the times from reading a request to its reply, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// The median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
}

impl Latency {
    /// Computes the percentiles of a histogram: the numbers of requests below each bound, and of the slower ones. They are interpolated
    /// within their buckets. None without requests.
    pub fn of(bounds_us: &[f64], counts: &[u64]) -> Option<Self> {
        Some(Latency {
            p50_us: percentile(bounds_us, counts, 0.50)?,
            p99_us: percentile(bounds_us, counts, 0.99)?,
        })
    }
}

fn percentile(bounds_us: &[f64], counts: &[u64], share: f64) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    let rank = total as f64 * share;
    let mut below = 0.0;
    for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let count = *count as f64;
        if below + count >= rank {
            let start =
                bucket.checked_sub(1).and_then(|before| bounds_us.get(before)).copied().unwrap_or(0.0);
            // Slower requests have no upper bound: their lower one is reported.
            let end = bounds_us.get(bucket).copied().unwrap_or(start);
            return Some(start + (end - start) * (rank - below) / count);
        }
        below += count;
    }
    None
}

/// Subtracts an earlier histogram of the same daemon.
pub fn difference(now: &[u64], before: &[u64]) -> Vec<u64> {
    let before = before.iter().copied().chain(std::iter::repeat(0));
    now.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: [f64; 3] = [1.0, 2.0, 4.0];

    #[test]
    fn percentiles_are_interpolated() {
        let latency = Latency::of(&BOUNDS, &[0, 100, 0, 0]).unwrap();
        assert_eq!((latency.p50_us, latency.p99_us), (1.5, 1.99));
        let latency = Latency::of(&BOUNDS, &[98, 0, 1, 1]).unwrap();
        assert!(latency.p50_us < 1.0);
        assert_eq!(latency.p99_us, 4.0);
    }

    #[test]
    fn the_slowest_have_a_lower_bound() {
        assert_eq!(Latency::of(&BOUNDS, &[0, 0, 0, 5]).unwrap().p50_us, 4.0);
    }

    #[test]
    fn without_requests_there_is_none() {
        assert_eq!(Latency::of(&BOUNDS, &[0, 0, 0, 0]), None);
        assert_eq!(Latency::of(&[], &[]), None);
    }

    #[test]
    fn older_daemons_report_no_histogram() {
        assert_eq!(difference(&[3, 4], &[]), [3, 4]);
        assert_eq!(difference(&[3, 4], &[1, 5]), [2, 0]);
    }
}
