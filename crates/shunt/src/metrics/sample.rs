//! The terms in which the catalogue describes metrics.

use crate::report::Stat;

use super::scrape::GatewayScrape;

/// The type of a metric in OpenMetrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until the daemon ends. Its name ends in `_total`.
    Counter,
    Gauge,
    Histogram,
    /// Always 1: its labels describe the subject. Its name ends in `_info`.
    Info,
}

impl Kind {
    /// The name of the type in the documentation.
    #[cfg(test)]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }
}

/// The unit of a metric, which is part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    None,
    Bytes,
    Seconds,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Integer(u64),
    Number(f64),
    /// Pairs of an upper bound and the number of observations in the bucket, not cumulative, ascending, and the sum of all.
    Histogram(Vec<(f64, u64)>, f64),
}

/// A value and its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Values of [`Family::labels`], in their order.
    pub labels: Vec<String>,
    pub value: Value,
}

/// How the samples of a metric are read.
#[derive(Clone, Copy, Debug)]
pub enum Read {
    /// From each mount. The label `mount` is added.
    Mount(fn(&Stat) -> Vec<Sample>),
    /// From the gateway. The label `volume` is added.
    Gateway(fn(&GatewayScrape) -> Vec<Sample>),
    /// 1 for each mount whose daemon answers, else 0. The label `mount` is added.
    Up,
    /// From this process.
    Process(fn() -> Vec<Sample>),
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name without unit and without the suffix of its type.
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    /// Labels besides `mount` or `volume`.
    pub labels: &'static [&'static str],
    pub help: &'static str,
    pub read: Read,
}

impl Family {
    /// The name under which Prometheus stores it; of a histogram without `_bucket`, `_sum` and `_count`.
    #[cfg(test)]
    pub fn full_name(&self) -> String {
        let unit = match self.unit {
            Unit::None => "",
            Unit::Bytes => "_bytes",
            Unit::Seconds => "_seconds",
        };
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        format!("{}{unit}{suffix}", self.name)
    }
}

/// Describes a metric of mounts without further labels.
pub const fn of_mount(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    help: &'static str,
    read: fn(&Stat) -> Vec<Sample>,
) -> Family {
    Family { name, kind, unit, labels: &[], help, read: Read::Mount(read) }
}

/// A whole number without labels.
pub fn integer(value: u64) -> Vec<Sample> {
    vec![Sample { labels: Vec::new(), value: Value::Integer(value) }]
}

/// A number without labels.
pub fn number(value: f64) -> Vec<Sample> {
    vec![Sample { labels: Vec::new(), value: Value::Number(value) }]
}

/// A number without labels; nothing if it is not known.
pub fn known(value: Option<f64>) -> Vec<Sample> {
    value.map_or_else(Vec::new, number)
}

/// A sample with one label.
pub fn labelled(label: impl Into<String>, value: Value) -> Sample {
    Sample { labels: vec![label.into()], value }
}
