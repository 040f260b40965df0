//! The cost of an empty FUSE request on each transport, from which the floor of a series is computed.

use std::fmt;

use serde::Serialize;

/// Microseconds per empty request.
#[derive(Debug, Clone, Serialize)]
pub struct RoundTrip {
    /// Client and server on one core.
    pub same_core_us: f64,
    /// Client and server on two cores; none on a machine with one.
    pub cross_core_us: Option<f64>,
    /// Client and server unpinned; over io_uring, with a server thread on each core.
    pub unpinned_us: f64,
}

impl RoundTrip {
    /// The cheapest of the three, in seconds.
    fn cheapest(&self) -> f64 {
        self.same_core_us.min(self.unpinned_us).min(self.cross_core_us.unwrap_or(f64::MAX)) / 1e6
    }
}

impl fmt::Display for RoundTrip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cross = self.cross_core_us.map_or("-".into(), |us| format!("{us:.1}"));
        let Self { same_core_us: same, unpinned_us: unpinned, .. } = self;
        write!(f, "{same:.1} us on one core, {cross} us across cores, {unpinned:.1} us unpinned")
    }
}

/// The round trips of both transports.
#[derive(Debug, Clone, Serialize)]
pub struct RoundTrips {
    /// Over `/dev/fuse`.
    pub dev: RoundTrip,
    /// Over io_uring, where the kernel has it.
    pub ring: Option<RoundTrip>,
}

impl RoundTrips {
    /// The cheapest round trip on the transport of this peer, in seconds.
    pub fn cheapest(&self, peer: &str) -> f64 {
        let ring = self.ring.as_ref().filter(|_| peer.contains("-uring"));
        ring.unwrap_or(&self.dev).cheapest()
    }
}
