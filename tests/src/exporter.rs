//! Scrapes of metrics, by `shunt metrics` or by the daemons themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use shunt_test_support::cmd::Ended;

use crate::binary;

/// A running `shunt metrics`, ended on drop.
#[derive(Debug)]
pub struct Exporter {
    process: Ended,
    address: String,
}

impl Exporter {
    /// Starts it at a free port.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn start() -> Self {
        let mut command = binary::command(&["metrics", "--listen", "127.0.0.1:0"]);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("shunt metrics");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let process = Ended(process);
        let address = line.trim().strip_prefix("shunt: metrics of all mounts at http://");
        let address = address.and_then(|rest| rest.strip_suffix("/metrics")).expect("an address").to_owned();
        Self { process, address }
    }

    /// Returns its address, `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns its process.
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Scrapes it.
    ///
    /// # Panics
    /// If it does not reply, or not with metrics.
    #[track_caller]
    pub fn scrape(&self) -> Metrics {
        Metrics::of(&self.address)
    }
}

/// Returns the body of `GET /metrics`; `None` if no process listens or the reply is not complete.
pub fn get(address: &str, accept: &str) -> Option<String> {
    fetch(address, "/metrics", accept)
}

/// Returns the body of a `GET`; `None` if no process listens, or the reply is an error or not complete.
pub fn fetch(address: &str, path: &str, accept: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    // Replies to this version are not chunked.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n").ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let (head, body) = reply.split_once("\r\n\r\n")?;
    (head.split(' ').nth(1) == Some("200")).then(|| body.to_owned())
}

/// The samples of a scrape, by name with labels.
#[derive(Debug)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Scrapes an address.
    ///
    /// # Panics
    /// If no process replies, or not with metrics.
    #[track_caller]
    pub fn of(address: &str) -> Self {
        Self::try_of(address).unwrap_or_else(|| panic!("no metrics at {address}"))
    }

    /// Scrapes an address; `None` if no process replies.
    ///
    /// # Panics
    /// If a line is no sample, or occurs twice.
    pub fn try_of(address: &str) -> Option<Self> {
        let body = get(address, "application/openmetrics-text; version=1.0.0")?;
        assert!(body.ends_with("# EOF\n"), "an incomplete scrape");
        let mut samples = BTreeMap::new();
        for line in body.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(samples.insert(name.to_owned(), value).is_none(), "twice: {line}");
        }
        Some(Self(samples))
    }

    /// Returns a sample: `name`, with the labels `mount` and, if it is not empty, others.
    pub fn of_mount(&self, name: &str, mount: &std::path::Path, others: &str) -> Option<f64> {
        let comma = if others.is_empty() { "" } else { "," };
        self.get(&format!("{name}{{mount=\"{}\"{comma}{others}}}", mount.display()))
    }

    /// Returns a sample by its name with labels, as in the text.
    pub fn get(&self, sample: &str) -> Option<f64> {
        self.0.get(sample).copied()
    }

    /// Returns the names of all metrics, of histograms without `_bucket`, `_sum` and `_count`.
    pub fn names(&self) -> BTreeSet<String> {
        let name = |sample: &String| {
            let name = sample.split('{').next().unwrap_or_default();
            let histogram =
                name.split_once("_duration_seconds").map(|(base, _)| format!("{base}_duration_seconds"));
            histogram.unwrap_or_else(|| name.to_owned())
        };
        self.0.keys().map(name).collect()
    }
}
