//! Estimates latency and download rate of the link to the stores. Both are exponential moving averages over recent transfers
//! and requests. Background transfers avoid a slow link, and the estimates are shown in the status of a mount.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Rate in bytes per second below which the link is slow: 8 Mbit/s.
const SLOW_RATE: f64 = (1 << 20) as f64;
/// Latency above which the link is slow, whatever its rate.
const SLOW_ANSWER: Duration = Duration::from_millis(400);
/// Minimum number of bytes for a measurement of the rate.
const TELLING: u64 = 128 << 10;
/// Maximum duration of one measurement of the rate.
const SPAN: Duration = Duration::from_secs(1);
/// Measurements expire after this time.
const OLD: Duration = Duration::from_secs(300);
/// Weight of the latest measurement in the moving average.
const WEIGHT: f64 = 0.4;

/// The current estimates.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LinkQuality {
    /// Latency of a small request.
    pub answer: Option<Duration>,
    /// Download rate in bytes per second.
    pub rate: Option<f64>,
    /// Background transfers should not use the link.
    pub is_slow: bool,
}

#[derive(Debug, Default)]
struct State {
    under_way: u32,
    since: Option<Instant>,
    bytes: u64,
    rate: Option<(f64, Instant)>,
    answer: Option<(f64, Instant)>,
}

/// The estimator: exponential moving averages.
#[derive(Debug, Default)]
pub struct BandwidthEstimator(Mutex<State>);

fn mixed(before: Option<(f64, Instant)>, new: f64, now: Instant) -> Option<(f64, Instant)> {
    let mixed = match before {
        Some((before, at)) if now - at < OLD => before + WEIGHT * (new - before),
        _ => new,
    };
    Some((mixed, now))
}

impl BandwidthEstimator {
    /// Records the start of a transfer.
    pub fn begin(&self) {
        let mut state = self.0.lock();
        if state.under_way == 0 {
            state.since = Some(Instant::now());
            state.bytes = 0;
        }
        state.under_way += 1;
    }

    /// Records the end of a transfer, with the bytes received; 0 if it failed.
    pub fn end(&self, bytes: u64) {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.under_way = state.under_way.saturating_sub(1);
        state.bytes += bytes;
        let Some(since) = state.since else { return };
        let took = now - since;
        if state.under_way > 0 && took < SPAN {
            return;
        }
        // A long transfer of few bytes is a measurement too.
        if state.bytes >= TELLING || took >= SPAN && state.bytes > 0 {
            let rate = state.bytes as f64 / took.as_secs_f64().max(1e-6);
            state.rate = mixed(state.rate, rate, now);
        }
        state.since = Some(now);
        state.bytes = 0;
    }

    /// Records the latency of a small request.
    pub fn answered(&self, took: Duration) {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.answer = mixed(state.answer, took.as_secs_f64(), now);
    }

    /// Returns the current estimates.
    pub fn quality(&self) -> LinkQuality {
        let now = Instant::now();
        let state = self.0.lock();
        let recent =
            |known: Option<(f64, Instant)>| known.filter(|(_, at)| now - *at < OLD).map(|(value, _)| value);
        let (rate, answer) = (recent(state.rate), recent(state.answer).map(Duration::from_secs_f64));
        let is_slow =
            rate.is_some_and(|rate| rate < SLOW_RATE) || answer.is_some_and(|answer| answer > SLOW_ANSWER);
        LinkQuality { answer, rate, is_slow }
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
        link.answered(Duration::from_millis(5));
        assert!(!link.quality().is_slow);
        (0..20).for_each(|_| link.answered(Duration::from_millis(900)));
        assert!(link.quality().is_slow);

        let link = BandwidthEstimator::default();
        link.begin();
        std::thread::sleep(Duration::from_millis(300));
        link.end(TELLING);
        assert!(link.quality().is_slow, "{:?}", link.quality());
        // Too few bytes for a measurement.
        let link = BandwidthEstimator::default();
        link.begin();
        link.end(10);
        assert_eq!(link.quality().rate, None);
    }
}
