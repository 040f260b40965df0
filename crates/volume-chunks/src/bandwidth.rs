//! Estimates latency and download rate of the link to the stores. Both are exponential moving averages over recent transfers
//! and requests. Background transfers avoid a slow link, and the estimates are shown in the status of a mount.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Rate in bytes per second below which the link is slow: 8 Mbit/s.
const SLOW_BYTES_PER_SECOND: f64 = (1 << 20) as f64;
/// Latency above which the link is slow, independent of its rate.
const SLOW_LATENCY: Duration = Duration::from_millis(400);
/// Minimum number of bytes for a measurement of the rate.
const MIN_SAMPLE_BYTES: u64 = 128 << 10;
/// Maximum duration of one measurement of the rate.
const MAX_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Measurements expire after this time.
const MEASUREMENT_TTL: Duration = Duration::from_secs(300);
/// Weight of the latest measurement in the moving average.
const SAMPLE_WEIGHT: f64 = 0.4;

/// The current estimates.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LinkQuality {
    /// Latency of a small request.
    pub latency: Option<Duration>,
    /// Download rate in bytes per second.
    pub rate: Option<f64>,
    /// Background transfers should not use the link.
    pub is_slow: bool,
}

#[derive(Debug, Default)]
struct State {
    running_transfers: u32,
    since: Option<Instant>,
    bytes: u64,
    rate: Option<(f64, Instant)>,
    latency: Option<(f64, Instant)>,
}

/// The estimator: exponential moving averages.
#[derive(Debug, Default)]
pub struct BandwidthEstimator(Mutex<State>);

fn moving_average(before: Option<(f64, Instant)>, new: f64, now: Instant) -> Option<(f64, Instant)> {
    let mixed = match before {
        Some((before, at)) if now - at < MEASUREMENT_TTL => before + SAMPLE_WEIGHT * (new - before),
        _ => new,
    };
    Some((mixed, now))
}

impl BandwidthEstimator {
    /// Records the start of a transfer.
    pub fn begin(&self) {
        let mut state = self.0.lock();
        if state.running_transfers == 0 {
            state.since = Some(Instant::now());
            state.bytes = 0;
        }
        state.running_transfers += 1;
    }

    /// Records the end of a transfer, with the bytes received; 0 if it failed.
    pub fn end(&self, bytes: u64) {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.running_transfers = state.running_transfers.saturating_sub(1);
        state.bytes += bytes;
        let Some(since) = state.since else { return };
        let took = now - since;
        if state.running_transfers > 0 && took < MAX_SAMPLE_INTERVAL {
            return;
        }
        // A long transfer of few bytes is a measurement too.
        if state.bytes >= MIN_SAMPLE_BYTES || took >= MAX_SAMPLE_INTERVAL && state.bytes > 0 {
            let rate = state.bytes as f64 / took.as_secs_f64().max(1e-6);
            state.rate = moving_average(state.rate, rate, now);
        }
        state.since = Some(now);
        state.bytes = 0;
    }

    /// Records the latency of a small request.
    pub fn record_latency(&self, took: Duration) {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.latency = moving_average(state.latency, took.as_secs_f64(), now);
    }

    /// Returns the current estimates.
    pub fn quality(&self) -> LinkQuality {
        let now = Instant::now();
        let state = self.0.lock();
        let recent = |known: Option<(f64, Instant)>| {
            known.filter(|(_, at)| now - *at < MEASUREMENT_TTL).map(|(value, _)| value)
        };
        let (rate, answer) = (recent(state.rate), recent(state.latency).map(Duration::from_secs_f64));
        let is_slow = rate.is_some_and(|rate| rate < SLOW_BYTES_PER_SECOND)
            || answer.is_some_and(|answer| answer > SLOW_LATENCY);
        LinkQuality { latency: answer, rate, is_slow }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_slow_by_its_rate_or_its_answers() {
        let link = BandwidthEstimator::default();
        assert_eq!(link.quality(), LinkQuality::default());
        link.begin();
        link.end(64 << 20);
        assert!(!link.quality().is_slow && link.quality().rate.is_some());
        link.record_latency(Duration::from_millis(5));
        assert!(!link.quality().is_slow);
        (0..20).for_each(|_| link.record_latency(Duration::from_millis(900)));
        assert!(link.quality().is_slow);

        let link = BandwidthEstimator::default();
        link.begin();
        std::thread::sleep(Duration::from_millis(300));
        link.end(MIN_SAMPLE_BYTES);
        assert!(link.quality().is_slow, "{:?}", link.quality());
        // Too few bytes for a measurement.
        let link = BandwidthEstimator::default();
        link.begin();
        link.end(10);
        assert_eq!(link.quality().rate, None);
    }
}
