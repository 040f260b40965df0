//! The output of a run: a table on stdout, the figures as JSON, and a page with plots.

pub mod html;
pub mod table;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::model::{RoundTrips, Row, Series, Unit};
use crate::process;

/// All results of a run.
#[derive(Debug, Serialize)]
pub struct Results {
    /// A check of the harness, not a measurement.
    pub quick: bool,
    /// The running kernel.
    pub kernel: String,
    /// The machine's processor.
    pub processor: String,
    /// The empty round trips of this run.
    pub round_trips: RoundTrips,
    /// Every row so far.
    pub rows: Vec<Row>,
    /// Workloads that did not run, with the error.
    pub failures: Vec<String>,
}

impl Results {
    /// Results without any row.
    pub fn new(quick: bool, round_trips: RoundTrips) -> Self {
        Self {
            quick,
            kernel: process::kernel(),
            processor: process::processor(),
            round_trips,
            rows: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Writes the figures as JSON.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, to: &Path) -> Result<()> {
        fs::write(to, serde_json::to_vec_pretty(self)?).with_context(|| format!("write {}", to.display()))
    }

    /// The numbers of thresholds that passed, failed and could not be judged, as text.
    pub fn verdict(&self) -> String {
        let count = |state| {
            self.rows
                .iter()
                .flat_map(|row| &row.thresholds)
                .filter(|threshold| threshold.pass == state)
                .count()
        };
        let (passed, failed, open) = (count(Some(true)), count(Some(false)), count(None));
        let broken = self.failures.len();
        format!("thresholds: {passed} passed, {failed} failed, {open} not checked; {broken} workloads failed")
    }

    /// Reports whether every workload ran and every threshold was judged and holds.
    pub fn all_pass(&self) -> bool {
        let mut thresholds = self.rows.iter().flat_map(|row| &row.thresholds);
        self.failures.is_empty() && thresholds.all(|threshold| threshold.pass == Some(true))
    }
}

/// One peer's row of the table, as text.
struct Line {
    peer: String,
    value: String,
    range: String,
    ratio: String,
    requests: String,
    floor: String,
}

impl Line {
    fn of(row: &Row, series: &Series) -> Self {
        let none = || "-".to_owned();
        let number = |value| row.unit.format(value);
        let comparable = matches!(row.unit, Unit::Seconds | Unit::MebibytesPerSecond | Unit::PerSecond);
        let native = row.native().filter(|_| comparable);
        let ratio = native.and_then(|native| row.ratio(&series.peer, native));
        let range = series.range().filter(|_| series.values.len() > 1);
        Self {
            peer: series.peer.clone(),
            value: series
                .median()
                .map_or_else(none, |value| format!("{} {}", number(value), row.unit.symbol())),
            range: range.map_or_else(none, |(min, max)| format!("{}..{}", number(min), number(max))),
            ratio: ratio.map_or_else(none, |ratio| format!("{ratio:.2}")),
            requests: series.requests.map_or_else(none, |count| count.to_string()),
            floor: series.floor_seconds.zip(series.seconds).map_or_else(none, |(floor, seconds)| {
                let times = series.times_floor().map_or(String::new(), |times| format!(", {times:.2} times"));
                format!("{floor:.3} of {seconds:.3} s{times}")
            }),
        }
    }
}

/// The series that have values or an error.
fn non_empty(row: &Row) -> impl Iterator<Item = &Series> {
    row.series.iter().filter(|series| !series.values.is_empty() || series.error.is_some())
}

/// `PASS`, `FAIL`, or the reason why the threshold was not judged.
fn verdict_text(pass: Option<bool>) -> &'static str {
    match pass {
        Some(true) => "PASS",
        Some(false) => "FAIL",
        None => "not checked: a peer is missing or failed",
    }
}
