//! Writes a scrape as text, in the format of OpenMetrics 1.0 or in the older one of Prometheus.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry;

use super::catalog::families;
use super::sample::{Family, Kind, Read, Sample, Unit, Value};
use super::scrape::{MountScrape, Scrape};

/// The format of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
}

impl Format {
    /// Chooses the format for the `Accept` header of a request.
    pub fn accepted_by(accept: &str) -> Self {
        let media = |part: &str| part.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match accept.split(',').any(|part| media(part) == "application/openmetrics-text") {
            true => Format::OpenMetrics,
            false => Format::Prometheus,
        }
    }

    /// The value of the `Content-Type` header.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// Writes a scrape.
///
/// # Errors
/// The encoder refuses a metric.
pub fn render(scrape: &Arc<Scrape>, format: Format) -> Result<String, fmt::Error> {
    let mut registry = registry::Registry::default();
    registry.register_collector(Box::new(Everything(scrape.clone())));
    let mut out = String::with_capacity(64 << 10);
    match format {
        Format::OpenMetrics => text::encode(&mut out, &registry)?,
        Format::Prometheus => prometheus_text::encode(&mut out, &registry)?,
    }
    Ok(out)
}

#[derive(Debug)]
struct Everything(Arc<Scrape>);

impl Collector for Everything {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        families().try_for_each(|family| encode_family(&mut encoder, family, &self.0))
    }
}

fn encode_family(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Family,
    scrape: &Scrape,
) -> Result<(), fmt::Error> {
    let samples = samples(family, scrape);
    if samples.is_empty() {
        return Ok(());
    }
    let kind = match family.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
        Kind::Info => MetricType::Info,
    };
    let unit = match family.unit {
        Unit::None => None,
        Unit::Bytes => Some(registry::Unit::Bytes),
        Unit::Seconds => Some(registry::Unit::Seconds),
    };
    let mut metric = encoder.encode_descriptor(family.name, family.help, unit.as_ref(), kind)?;
    samples.into_iter().try_for_each(|(subject, sample)| encode_sample(&mut metric, family, subject, sample))
}

/// The label of the mount or volume, if there is one, and a sample.
type OfSubject<'a> = (Option<(&'static str, &'a str)>, Sample);

fn samples<'a>(family: &Family, scrape: &'a Scrape) -> Vec<OfSubject<'a>> {
    let mounts = scrape.mounts.iter();
    let of = |mount: &'a MountScrape| Some(("mount", mount.mountpoint.as_str()));
    match family.read {
        Read::Mount(read) => mounts
            .filter_map(|mount| Some((mount, mount.stat.as_ref()?)))
            .flat_map(|(mount, stat)| read(stat).into_iter().map(move |sample| (of(mount), sample)))
            .collect(),
        Read::Up => mounts
            .map(|mount| {
                let value = Value::Integer(mount.stat.is_some().into());
                (of(mount), Sample { labels: Vec::new(), value })
            })
            .collect(),
        Read::Gateway(read) => scrape
            .gateway
            .iter()
            .flat_map(|gateway| {
                let subject = Some(("volume", gateway.volume.as_str()));
                read(gateway).into_iter().map(move |sample| (subject, sample))
            })
            .collect(),
        Read::Process(read) => read().into_iter().map(|sample| (None, sample)).collect(),
    }
}

fn encode_sample(
    metric: &mut MetricEncoder<'_>,
    family: &Family,
    subject: Option<(&'static str, &str)>,
    sample: Sample,
) -> Result<(), fmt::Error> {
    let subject = subject.map(|(name, value)| (name, Cow::Borrowed(value)));
    let others = family.labels.iter().copied().zip(sample.labels.into_iter().map(Cow::Owned));
    let labels: Vec<(&'static str, Cow<'_, str>)> = subject.into_iter().chain(others).collect();
    if family.kind == Kind::Info {
        return metric.encode_info(&labels);
    }
    let mut metric = metric.encode_family(&labels)?;
    match (family.kind, sample.value) {
        (Kind::Counter, Value::Integer(value)) => metric.encode_counter::<NoLabelSet, _, u64>(&value, None),
        (Kind::Counter, Value::Number(value)) => metric.encode_counter::<NoLabelSet, _, u64>(&value, None),
        (_, Value::Integer(value)) => metric.encode_gauge(&value),
        (_, Value::Number(value)) => metric.encode_gauge(&value),
        (_, Value::Histogram(buckets, sum)) => {
            let count = buckets.iter().map(|(_, count)| count).sum();
            metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Requests, Stat};

    fn scrape() -> Arc<Scrape> {
        let mut stat = Stat { mountpoint: "/a \"b\\\n".into(), kind: "mirror".into(), ..Stat::default() };
        stat.latency_bounds_us = vec![1000.0, 2000.0];
        let read =
            Requests { count: 6, errors: 1, total_us: 9e6, latency: vec![3, 2, 1], ..Requests::default() };
        stat.requests.insert("read".into(), read);
        let dead = MountScrape { mountpoint: "/dead".into(), stat: None };
        let mut scrape = Scrape::of_mount(stat);
        scrape.mounts.push(dead);
        Arc::new(scrape)
    }

    #[test]
    fn both_formats_have_the_same_samples() {
        let open = render(&scrape(), Format::OpenMetrics).unwrap();
        let plain = render(&scrape(), Format::Prometheus).unwrap();
        for line in [
            r#"shunt_requests_total{mount="/a \"b\\\n",operation="read"} 6"#,
            r#"shunt_request_errors_total{mount="/a \"b\\\n",operation="read"} 1"#,
            r#"shunt_mount_up{mount="/dead"} 0"#,
        ] {
            assert!(open.contains(line) && plain.contains(line), "{line} is not in {open}");
        }
        assert!(
            open.ends_with("# EOF\n") && open.contains("# UNIT shunt_request_duration_seconds seconds\n")
        );
        assert!(open.contains("# TYPE shunt_requests counter\n"));
        assert!(plain.contains("# TYPE shunt_requests_total counter\n") && !plain.contains("# UNIT"));
        let bucket = |le: &str| {
            let line =
                open.lines().find(|line| line.contains("duration_seconds_bucket") && line.contains(le));
            line.unwrap().rsplit(' ').next().unwrap().to_owned()
        };
        assert_eq!((bucket("0.001"), bucket("0.002"), bucket("+Inf")), ("3".into(), "5".into(), "6".into()));
    }

    #[test]
    fn the_format_is_the_one_that_is_accepted() {
        for (accept, format) in [
            ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5,*/*;q=0.1", Format::OpenMetrics),
            ("text/plain, Application/OpenMetrics-Text", Format::OpenMetrics),
            ("*/*", Format::Prometheus),
            ("", Format::Prometheus),
        ] {
            assert_eq!(Format::accepted_by(accept), format, "{accept}");
        }
    }
}
