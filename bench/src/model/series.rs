//! The measurements of one peer.

use serde::Serialize;

use super::statistics::median;

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
    /// An empty series of a peer.
    pub fn new(peer: &str) -> Self {
        Self { peer: peer.into(), ..Self::default() }
    }

    /// Adds a sample.
    pub fn push(&mut self, sample: Sample) {
        self.values.push(sample.value);
        self.samples.push(sample);
    }

    /// Computes the medians of seconds and requests, and from the latter the floor for a `round_trip` in seconds.
    pub fn finish(&mut self, round_trip: f64) {
        let seconds: Vec<f64> = self.samples.iter().map(|sample| sample.seconds).collect();
        self.seconds = median(&seconds);
        let mut requests: Vec<u64> = self.samples.iter().filter_map(|sample| sample.requests).collect();
        requests.sort_unstable();
        self.requests = requests.get(requests.len() / 2).copied();
        self.floor_seconds = self.requests.map(|count| count as f64 * round_trip);
    }

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
        let min = self.values.iter().copied().reduce(f64::min)?;
        Some((min, self.values.iter().copied().reduce(f64::max)?))
    }
}
