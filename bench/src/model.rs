//! Results: rows of a workload with one series per peer, and the bars they are judged by.

use serde::Serialize;

use crate::roundtrip::RoundTrips;

/// The unit of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Wall-clock seconds; less is better.
    Seconds,
    /// Mebibytes per second; more is better.
    MebibytesPerSecond,
    /// Files per second; more is better.
    PerSecond,
    /// Requests per million writes; less is better.
    PerMillion,
    /// Bytes of daemon memory per inode; less is better.
    BytesPerInode,
    /// Mebibytes of memory; less is better.
    Mebibytes,
    /// A plain count; less is better.
    Count,
}

impl Unit {
    /// The unit's symbol in tables.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::MebibytesPerSecond => "MiB/s",
            Self::PerSecond => "per second",
            Self::Mebibytes => "MiB",
            Self::PerMillion => "per million",
            Self::BytesPerInode => "bytes/inode",
            Self::Count => "",
        }
    }

    /// Formats a value with its significant digits.
    pub fn format(self, value: f64) -> String {
        match self {
            Self::Seconds => format!("{value:.3}"),
            Self::MebibytesPerSecond | Self::BytesPerInode | Self::Mebibytes if value < 100.0 => {
                format!("{value:.1}")
            }
            _ => format!("{value:.0}"),
        }
    }
}

/// One measurement of one peer.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The value, in the row's unit.
    pub value: f64,
    /// Wall-clock seconds; the floor is compared with it.
    pub seconds: f64,
    /// Requests the daemon answered meanwhile.
    pub requests: Option<u64>,
}

/// All measurements of one peer.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Series {
    /// The peer's name.
    pub peer: String,
    /// One value per round, in the row's unit.
    pub values: Vec<f64>,
    /// Median of the wall-clock seconds.
    pub seconds: Option<f64>,
    /// Median of the requests the daemon answered.
    pub requests: Option<u64>,
    /// Requests times the cheapest empty round trip on the peer's transport in this run, in seconds.
    pub floor_seconds: Option<f64>,
    /// The error after which it has no (more) values.
    pub error: Option<String>,
    #[serde(skip)]
    samples: Vec<Sample>,
}

impl Series {
    /// The median of the values.
    pub fn median(&self) -> Option<f64> {
        median(&self.values)
    }

    /// Wall-clock seconds as a multiple of the floor.
    pub fn times_floor(&self) -> Option<f64> {
        let floor = self.floor_seconds.filter(|floor| *floor > 0.0)?;
        Some(self.seconds? / floor)
    }

    /// Smallest and largest value.
    pub fn range(&self) -> Option<(f64, f64)> {
        let least = self.values.iter().copied().reduce(f64::min)?;
        Some((least, self.values.iter().copied().reduce(f64::max)?))
    }
}

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
    /// The bars that judge the row.
    pub bars: Vec<Bar>,
    /// Remarks for the reader of the report.
    pub notes: Vec<String>,
}

/// A bar and the row's result against it.
#[derive(Debug, Clone, Serialize)]
pub struct Bar {
    /// The bar in words, such as `>= 0.80 native`.
    pub text: String,
    /// The measured value; none when a peer is missing.
    pub value: Option<f64>,
    /// The verdict; none when a peer is missing.
    pub pass: Option<bool>,
    /// The ratio of native itself to the same peer: no daemon can do better.
    pub native: Option<f64>,
    /// The peer's seconds as a multiple of its floor, for bars that accept that.
    pub times_floor: Option<f64>,
}

impl Bar {
    /// The measured value, as text.
    pub fn measured(&self) -> String {
        let value = self.value.map_or("-".into(), |value| format!("{value:.2}"));
        let native = self.native.map_or(String::new(), |native| format!(" (native itself {native:.2})"));
        let floor = self.times_floor.map_or(String::new(), |times| format!(", {times:.2} its floor"));
        format!("{value}{native}{floor}")
    }
}

impl Row {
    /// An empty row.
    pub fn new(workload: &str, case: &str, unit: Unit) -> Self {
        Self {
            workload: workload.into(),
            case: case.into(),
            unit,
            series: Vec::new(),
            bars: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Returns a peer's series, which is added when it is new. Calling it for all peers first fixes their order.
    pub fn seat(&mut self, peer: &str) -> &mut Series {
        let at = self.series.iter().position(|series| series.peer == peer).unwrap_or_else(|| {
            self.series.push(Series { peer: peer.into(), ..Series::default() });
            self.series.len() - 1
        });
        &mut self.series[at]
    }

    /// Adds a peer's sample, or the error that prevented it.
    pub fn record(&mut self, peer: &str, result: Result<Sample, String>) {
        let series = self.seat(peer);
        match result {
            Ok(sample) => {
                series.values.push(sample.value);
                series.samples.push(sample);
            }
            Err(why) => series.error = Some(why),
        }
    }

    /// Computes medians and floors once all samples are in.
    pub fn finish(&mut self, round_trips: &RoundTrips) {
        for series in &mut self.series {
            let round_trip = round_trips.least(&series.peer);
            let seconds: Vec<f64> = series.samples.iter().map(|sample| sample.seconds).collect();
            series.seconds = median(&seconds);
            let mut requests: Vec<u64> = series.samples.iter().filter_map(|sample| sample.requests).collect();
            requests.sort_unstable();
            series.requests = requests.get(requests.len() / 2).copied();
            series.floor_seconds = series.requests.map(|count| count as f64 * round_trip);
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

    fn native_against(&self, other: &str) -> Option<f64> {
        self.ratio("native", other).filter(|_| other != "native")
    }

    /// Bar: `peer` has at least `least` times the value of `other`.
    pub fn at_least(&mut self, peer: &str, least: f64, other: &str) {
        let value = self.ratio(peer, other);
        let text = format!("{peer} >= {least:.2} {other}");
        let native = self.native_against(other);
        self.bars.push(Bar {
            text,
            value,
            pass: value.map(|value| value >= least),
            native,
            times_floor: None,
        });
    }

    /// Bar: `peer` has at most `most` times the value of `other`.
    pub fn at_most(&mut self, peer: &str, most: f64, other: &str) {
        let value = self.ratio(peer, other);
        let text = format!("{peer} <= {most:.2} {other}");
        let native = self.native_against(other);
        self.bars.push(Bar {
            text,
            value,
            pass: value.map(|value| value <= most),
            native,
            times_floor: None,
        });
    }

    /// Bar: [`at_least`](Self::at_least), or `peer` takes at most `times` its floor.
    pub fn at_least_or_near_floor(&mut self, peer: &str, least: f64, other: &str, times: f64) {
        self.at_least(peer, least, other);
        self.or_near_floor(peer, times);
    }

    /// Bar: [`at_most`](Self::at_most), or `peer` takes at most `times` its floor.
    pub fn at_most_or_near_floor(&mut self, peer: &str, most: f64, other: &str, times: f64) {
        self.at_most(peer, most, other);
        self.or_near_floor(peer, times);
    }

    fn or_near_floor(&mut self, peer: &str, times: f64) {
        let near = self.series.iter().find(|series| series.peer == peer).and_then(Series::times_floor);
        if let Some(bar) = self.bars.last_mut() {
            bar.text += &format!(" or {times:.2} its floor");
            bar.times_floor = near;
            bar.pass = bar.pass.map(|pass| pass || near.is_some_and(|near| near <= times));
        }
    }

    /// Bar: the value of `peer` itself is at most `most`.
    pub fn limit(&mut self, peer: &str, most: f64) {
        let value = self.value(peer);
        let text = format!("{peer} <= {most} {}", self.unit.symbol()).trim_end().to_owned();
        self.bars.push(Bar {
            text,
            value,
            pass: value.map(|value| value <= most),
            native: None,
            times_floor: None,
        });
    }

    /// Bar: the value of `peer` itself is at least `least`.
    pub fn reaches(&mut self, peer: &str, least: f64) {
        let value = self.value(peer);
        let text = format!("{peer} >= {least} {}", self.unit.symbol()).trim_end().to_owned();
        let pass = value.map(|value| value >= least);
        self.bars.push(Bar { text, value, pass, native: None, times_floor: None });
    }

    /// Bar: `peer` completes the case without an error.
    pub fn works(&mut self, peer: &str) {
        let series = self.series.iter().find(|series| series.peer == peer);
        let pass = series.map(|series| series.error.is_none() && !series.values.is_empty());
        let value = pass.map(f64::from);
        self.bars.push(Bar { text: format!("{peer} works"), value, pass, native: None, times_floor: None });
    }
}

/// The median of `values`; the mean of the two middle ones when their number is even.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roundtrip::RoundTrip;

    fn sample(value: f64) -> Sample {
        Sample { value, seconds: 1.0, requests: Some(1000) }
    }

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_missing_or_failed_peer_decides_no_bar() {
        let mut row = Row::new("w", "c", Unit::Seconds);
        row.record("native", Ok(sample(1.0)));
        row.at_most("shunt", 1.15, "native");
        row.record("shunt", Err("did not mount".into()));
        row.at_most("shunt", 1.15, "native");
        row.works("shunt");
        assert_eq!(row.bars[0].pass, None);
        assert_eq!(row.bars[1].pass, None);
        assert_eq!(row.bars[2].pass, Some(false));
    }

    fn trips() -> RoundTrips {
        let trip = |us| RoundTrip { same_core_us: us, cross_core_us: None, unpinned_us: 2.0 * us };
        RoundTrips { dev: trip(20.0), ring: Some(trip(10.0)) }
    }

    #[test]
    fn the_floor_is_requests_times_the_round_trip_of_the_transport() {
        let mut row = Row::new("w", "c", Unit::Seconds);
        row.record("shunt", Ok(sample(1.0)));
        row.record("shunt-uring", Ok(sample(1.0)));
        row.finish(&trips());
        assert!((row.series[0].floor_seconds.unwrap() - 0.02).abs() < 1e-9);
        assert!((row.series[1].floor_seconds.unwrap() - 0.01).abs() < 1e-9);
    }

    #[test]
    fn a_bar_is_also_passed_near_the_floor() {
        let mut row = Row::new("w", "c", Unit::Seconds);
        row.record("libfuse-uring", Ok(sample(1.0)));
        row.record("shunt-uring", Ok(Sample { seconds: 0.012, ..sample(1.0) }));
        row.finish(&trips());
        row.at_most_or_near_floor("shunt-uring", 0.8, "libfuse-uring", 1.3);
        row.at_most_or_near_floor("shunt-uring", 0.8, "libfuse-uring", 1.1);
        row.at_most_or_near_floor("shunt-uring", 0.8, "bindfs", 1.3);
        assert_eq!(row.bars.iter().map(|bar| bar.pass).collect::<Vec<_>>(), [Some(true), Some(false), None]);
    }
}
