//! One case of a workload, measured on every peer.

use serde::Serialize;

use super::round_trip::RoundTrips;
use super::series::{Sample, Series};
use super::threshold::Threshold;
use super::unit::Unit;

/// One case of a workload, measured on every peer.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The workload's name.
    pub workload: String,
    /// The case of the workload, such as `randread`.
    pub case: String,
    /// The unit of all values.
    pub unit: Unit,
    /// The series; native first.
    pub series: Vec<Series>,
    /// The thresholds that judge the row.
    #[serde(rename = "bars")]
    pub thresholds: Vec<Threshold>,
    /// Remarks for the reader of the report.
    pub notes: Vec<String>,
}

impl Row {
    /// An empty row.
    pub fn new(workload: &str, case: &str, unit: Unit) -> Self {
        Self {
            workload: workload.into(),
            case: case.into(),
            unit,
            series: Vec::new(),
            thresholds: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Returns a peer's series, which is added when it is new. Calling it for all peers first fixes their order.
    pub fn series_mut(&mut self, peer: &str) -> &mut Series {
        let at = self.series.iter().position(|series| series.peer == peer).unwrap_or_else(|| {
            self.series.push(Series::new(peer));
            self.series.len() - 1
        });
        &mut self.series[at]
    }

    /// Adds a peer's sample, or the error that prevented it.
    pub fn record(&mut self, peer: &str, result: Result<Sample, String>) {
        let series = self.series_mut(peer);
        match result {
            Ok(sample) => series.push(sample),
            Err(why) => series.error = Some(why),
        }
    }

    /// Computes medians and floors once all samples are in.
    pub fn finish(&mut self, round_trips: &RoundTrips) {
        for series in &mut self.series {
            let round_trip = round_trips.cheapest(&series.peer);
            series.finish(round_trip);
        }
    }

    /// The median of a peer that did not fail.
    pub fn value(&self, peer: &str) -> Option<f64> {
        let series = self.series.iter().find(|series| series.peer == peer)?;
        if series.error.is_some() { None } else { series.median() }
    }

    /// The value of `peer` divided by that of `other`.
    pub fn ratio(&self, peer: &str, other: &str) -> Option<f64> {
        Some(self.value(peer)? / self.value(other)?)
    }

    /// The implementation without a daemon: the first series, if it is native or the kernel.
    pub fn native(&self) -> Option<&str> {
        let first = self.series.first()?.peer.as_str();
        ["native", "kernel"].contains(&first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::round_trip::RoundTrip;

    #[test]
    fn the_floor_is_requests_times_the_round_trip_of_the_transport() {
        let trip = |us| RoundTrip { same_core_us: us, cross_core_us: None, unpinned_us: 2.0 * us };
        let trips = RoundTrips { dev: trip(20.0), ring: Some(trip(10.0)) };
        let sample = || Ok(Sample { value: 1.0, seconds: 1.0, requests: Some(1000) });
        let mut row = Row::new("w", "c", Unit::Seconds);
        row.record("shunt", sample());
        row.record("shunt-uring", sample());
        row.finish(&trips);
        assert!((row.series[0].floor_seconds.unwrap() - 0.02).abs() < 1e-9);
        assert!((row.series[1].floor_seconds.unwrap() - 0.01).abs() < 1e-9);
    }
}
