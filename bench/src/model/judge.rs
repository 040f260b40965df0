//! Judges a row: each method adds one threshold with its verdict. The row must be finished.

use super::row::Row;
use super::series::Series;
use super::threshold::Threshold;

impl Row {
    fn native_against(&self, other: &str) -> Option<f64> {
        self.ratio("native", other).filter(|_| other != "native")
    }

    /// Requires that `peer` has at least `min` times the value of `other`.
    pub fn at_least(&mut self, peer: &str, min: f64, other: &str) {
        let value = self.ratio(peer, other);
        self.thresholds.push(Threshold {
            text: format!("{peer} >= {min:.2} {other}"),
            value,
            pass: value.map(|value| value >= min),
            native: self.native_against(other),
            times_floor: None,
        });
    }

    /// Requires that `peer` has at most `max` times the value of `other`.
    pub fn at_most(&mut self, peer: &str, max: f64, other: &str) {
        let value = self.ratio(peer, other);
        self.thresholds.push(Threshold {
            text: format!("{peer} <= {max:.2} {other}"),
            value,
            pass: value.map(|value| value <= max),
            native: self.native_against(other),
            times_floor: None,
        });
    }

    /// Requires [`at_least`](Self::at_least), or that `peer` takes at most `times` its floor.
    pub fn at_least_or_near_floor(&mut self, peer: &str, min: f64, other: &str, times: f64) {
        self.at_least(peer, min, other);
        self.or_near_floor(peer, times);
    }

    /// Requires [`at_most`](Self::at_most), or that `peer` takes at most `times` its floor.
    pub fn at_most_or_near_floor(&mut self, peer: &str, max: f64, other: &str, times: f64) {
        self.at_most(peer, max, other);
        self.or_near_floor(peer, times);
    }

    fn or_near_floor(&mut self, peer: &str, times: f64) {
        let near = self.series.iter().find(|series| series.peer == peer).and_then(Series::times_floor);
        if let Some(threshold) = self.thresholds.last_mut() {
            threshold.text += &format!(" or {times:.2} times its floor");
            threshold.times_floor = near;
            threshold.pass = threshold.pass.map(|pass| pass || near.is_some_and(|near| near <= times));
        }
    }

    /// Requires that the value of `peer` itself is at most `max`.
    pub fn limit(&mut self, peer: &str, max: f64) {
        let value = self.value(peer);
        let text = format!("{peer} <= {max} {}", self.unit.symbol()).trim_end().to_owned();
        let pass = value.map(|value| value <= max);
        self.thresholds.push(Threshold { text, value, pass, ..Threshold::default() });
    }

    /// Requires that the value of `peer` itself is at least `min`.
    pub fn reaches(&mut self, peer: &str, min: f64) {
        let value = self.value(peer);
        let text = format!("{peer} >= {min} {}", self.unit.symbol()).trim_end().to_owned();
        let pass = value.map(|value| value >= min);
        self.thresholds.push(Threshold { text, value, pass, ..Threshold::default() });
    }

    /// Requires that `peer` completes the case without an error.
    pub fn works(&mut self, peer: &str) {
        let series = self.series.iter().find(|series| series.peer == peer);
        let pass = series.map(|series| series.error.is_none() && !series.values.is_empty());
        let value = pass.map(f64::from);
        self.thresholds.push(Threshold {
            text: format!("{peer} works"),
            value,
            pass,
            ..Threshold::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{RoundTrip, RoundTrips, Sample, Unit};

    fn sample(value: f64) -> Sample {
        Sample { value, seconds: 1.0, requests: Some(1000) }
    }

    fn passes(row: &Row) -> Vec<Option<bool>> {
        row.thresholds.iter().map(|threshold| threshold.pass).collect()
    }

    #[test]
    fn a_threshold_with_a_missing_or_failed_peer_has_no_verdict() {
        let mut row = Row::new("w", "c", Unit::Seconds);
        row.record("native", Ok(sample(1.0)));
        row.at_most("shunt", 1.15, "native");
        row.record("shunt", Err("did not mount".into()));
        row.at_most("shunt", 1.15, "native");
        row.works("shunt");
        assert_eq!(passes(&row), [None, None, Some(false)]);
    }

    #[test]
    fn a_threshold_is_also_passed_near_the_floor() {
        let trip = |us| RoundTrip { same_core_us: us, cross_core_us: None, unpinned_us: 2.0 * us };
        let trips = RoundTrips { dev: trip(20.0), ring: Some(trip(10.0)) };
        let mut row = Row::new("w", "c", Unit::Seconds);
        row.record("libfuse-uring", Ok(sample(1.0)));
        row.record("shunt-uring", Ok(Sample { seconds: 0.012, ..sample(1.0) }));
        row.finish(&trips);
        row.at_most_or_near_floor("shunt-uring", 0.8, "libfuse-uring", 1.3);
        row.at_most_or_near_floor("shunt-uring", 0.8, "libfuse-uring", 1.1);
        row.at_most_or_near_floor("shunt-uring", 0.8, "bindfs", 1.3);
        assert_eq!(passes(&row), [Some(true), Some(false), None]);
    }

    #[test]
    fn results_call_thresholds_bars() {
        let mut row = Row::new("w", "c", Unit::Seconds);
        row.works("shunt");
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(json["bars"][0]["text"], "shunt works");
    }
}
