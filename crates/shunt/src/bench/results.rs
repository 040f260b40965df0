//! The results. As JSON they are a contract: fields may be added, never changed.

use std::io;

use serde::Serialize;

use super::case::{Case, Plan, Work};
use super::sides::{Side, SideFacts, Sides};
use super::statistics::{Estimate, estimate, quantile, sorted, spread};
use super::workload::Sample;
use crate::error::{Failure, Result, failed};

/// Spread between rounds above which a case is noisy.
const NOISY_SPREAD: f64 = 0.25;
/// Confidence of an interval below which it shows no difference: fewer than five rounds.
const MIN_CONFIDENCE: f64 = 0.9;
/// Ratios this close to 1 are no difference.
const SAME: f64 = 0.05;

impl Side {
    /// The failure of an operation on this side.
    pub fn failed(&self, operation: &str, error: &io::Error) -> Failure {
        let remedy = match error.kind() {
            io::ErrorKind::StorageFull => "free space, or give a smaller --size or --files",
            io::ErrorKind::QuotaExceeded => "give a smaller --size or --files",
            _ => "see the log of the mount",
        };
        failed(format_args!("cannot {operation} in {}: {error}; {remedy}", self.dir.display()))
    }
}

/// The samples of a case on one side.
#[derive(Debug)]
pub struct Series {
    side: Side,
    case: String,
    samples: Vec<Sample>,
    unsupported: Option<String>,
}

impl Series {
    pub fn new(side: &Side, case: &str) -> Self {
        Series { side: side.clone(), case: case.to_owned(), samples: Vec::new(), unsupported: None }
    }

    /// Adds a round. O_DIRECT that the file system does not have leaves the case out.
    ///
    /// # Errors
    /// Another error of the file system.
    pub fn push(&mut self, sample: io::Result<Sample>) -> Result<()> {
        match sample {
            Ok(sample) => self.samples.push(sample),
            Err(error) if self.case.ends_with("direct") && error.kind() == io::ErrorKind::InvalidInput => {
                self.unsupported = Some(format!("{} has no O_DIRECT", self.side.fstype));
            }
            Err(error) => return Err(self.side.failed(&self.case, &error)),
        }
        Ok(())
    }

    fn figures(&self) -> Option<Figures> {
        let rates: Vec<f64> = self.samples.iter().map(|sample| sample.rate).collect();
        let latency = |at: usize| {
            quantile(
                &sorted(&self.samples.iter().map(|sample| sample.latency_us[at]).collect::<Vec<_>>()),
                0.5,
            )
        };
        let latency_us = Latency { p50: latency(0), p90: latency(1), p99: latency(2) };
        Some(Figures { rate: estimate(&rates)?, spread: spread(&rates), rounds: rates, latency_us })
    }
}

/// Latencies of operations in microseconds, each the median over the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
}

/// A case on one side.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Bytes or operations per second.
    pub rate: Estimate,
    /// The interquartile range of the rates as a share of their median.
    pub spread: f64,
    /// The rates of the rounds.
    pub rounds: Vec<f64>,
    pub latency_us: Latency,
}

/// The comparison of the mount with the other directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Faster,
    /// The ratio is within 5 % of 1.
    Same,
    Slower,
    /// The interval contains 1, or there are too few rounds for one.
    Unclear,
}

/// A case on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    pub name: String,
    /// `bytes/s` or `ops/s`.
    pub unit: &'static str,
    pub mount: Option<Figures>,
    pub against: Option<Figures>,
    /// Rate of the mount divided by that of the other directory, from the ratios of the rounds.
    pub ratio: Option<Estimate>,
    pub verdict: Option<Verdict>,
    /// Set if the rounds of a side differ much.
    pub noisy: bool,
    /// The reason why the case was left out.
    pub skipped: Option<String>,
}

/// All results.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    pub version: &'static str,
    pub kernel: String,
    pub processors: usize,
    pub mount: SideFacts,
    pub against: SideFacts,
    pub size: u64,
    pub files: u32,
    pub rounds: u32,
    pub seconds: f64,
    /// Names of the noisy cases.
    pub noisy: Vec<String>,
    pub cases: Vec<CaseResult>,
}

impl Results {
    pub fn new(
        plan: &Plan,
        sides: &Sides,
        rounds: u32,
        seconds: f64,
        mount: Vec<Series>,
        against: Vec<Series>,
    ) -> Self {
        let pairs = mount.iter().zip(&against).zip(&plan.cases);
        let cases: Vec<CaseResult> =
            pairs.map(|((mount, against), case)| compare(case, mount, against)).collect();
        let uname = rustix::system::uname();
        Results {
            version: env!("CARGO_PKG_VERSION"),
            kernel: uname.release().to_string_lossy().into_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            mount: sides.mount.facts(),
            against: sides.against.facts(),
            size: plan.size,
            files: plan.files,
            rounds,
            seconds,
            noisy: cases.iter().filter(|case| case.noisy).map(|case| case.name.clone()).collect(),
            cases,
        }
    }
}

fn compare(case: &Case, mount: &Series, against: &Series) -> CaseResult {
    let unit = match case.work {
        Work::Data { .. } => "bytes/s",
        Work::Metadata(_) => "ops/s",
    };
    let pairs = mount.samples.iter().zip(&against.samples);
    let ratios: Vec<f64> = pairs.filter(|(_, b)| b.rate > 0.0).map(|(a, b)| a.rate / b.rate).collect();
    let ratio = estimate(&ratios);
    let (mount_figures, against_figures) = (mount.figures(), against.figures());
    let noisy =
        [&mount_figures, &against_figures].into_iter().flatten().any(|side| side.spread > NOISY_SPREAD);
    CaseResult {
        name: case.name.clone(),
        unit,
        verdict: ratio.as_ref().map(verdict),
        ratio,
        noisy,
        skipped: mount.unsupported.clone().or_else(|| against.unsupported.clone()),
        mount: mount_figures,
        against: against_figures,
    }
}

fn verdict(ratio: &Estimate) -> Verdict {
    match ratio {
        ratio if (ratio.median - 1.0).abs() <= SAME => Verdict::Same,
        ratio if ratio.low <= 1.0 && ratio.high >= 1.0 || ratio.confidence < MIN_CONFIDENCE => {
            Verdict::Unclear
        }
        ratio if ratio.median > 1.0 => Verdict::Faster,
        _ => Verdict::Slower,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_needs_an_interval_without_one() {
        let of = |low, median, high| verdict(&Estimate { low, median, high, confidence: 0.95 });
        assert_eq!(of(0.5, 0.6, 0.7), Verdict::Slower);
        assert_eq!(of(0.5, 0.6, 1.1), Verdict::Unclear);
        assert_eq!(of(0.96, 0.97, 0.98), Verdict::Same);
        assert_eq!(of(1.2, 1.3, 1.4), Verdict::Faster);
        let few = Estimate { low: 1.2, median: 1.3, high: 1.4, confidence: 0.75 };
        assert_eq!(verdict(&few), Verdict::Unclear);
    }
}
