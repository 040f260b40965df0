//! How good the way to the stores is, by what came over it.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Bytes a second below which a way is slow: 8 Mbit/s.
const SLOW_RATE: f64 = (1 << 20) as f64;
/// An answer that takes longer comes over a slow way, whatever its rate.
const SLOW_ANSWER: Duration = Duration::from_millis(400);
/// Fewer bytes say nothing of a rate.
const TELLING: u64 = 128 << 10;
/// A rate is measured over so long at most.
const SPAN: Duration = Duration::from_secs(1);
/// What is older says nothing of now.
const OLD: Duration = Duration::from_secs(300);
/// How much of what is told is the last measurement.
const WEIGHT: f64 = 0.4;

/// What is known of a way.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LinkQuality {
    /// Until the answer to a small question.
    pub answer: Option<Duration>,
    /// Bytes a second that contents come with.
    pub rate: Option<f64>,
    /// Only what somebody waits for is to go over it.
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

/// Measures.
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
    /// Contents begin to come.
    pub fn begin(&self) {
        let mut state = self.0.lock();
        if state.under_way == 0 {
            state.since = Some(Instant::now());
            state.bytes = 0;
        }
        state.under_way += 1;
    }

    /// So many bytes of them came, or none did.
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
        // Few bytes that took long tell too.
        if state.bytes >= TELLING || took >= SPAN && state.bytes > 0 {
            let rate = state.bytes as f64 / took.as_secs_f64().max(1e-6);
            state.rate = mixed(state.rate, rate, now);
        }
        state.since = Some(now);
        state.bytes = 0;
    }

    /// A small question was answered.
    pub fn answered(&self, took: Duration) {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.answer = mixed(state.answer, took.as_secs_f64(), now);
    }

    /// What is known.
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
        // What is too little says nothing.
        let link = BandwidthEstimator::default();
        link.begin();
        link.end(10);
        assert_eq!(link.quality().rate, None);
    }
}
